// Seatbelt: the sandbox of macOS. A profile for sandbox-exec, and a trial of whether it holds on this machine.
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { SandboxNetwork } from "./sandbox.ts";

const program = "/usr/bin/sandbox-exec";
const PROBE_MS = 10_000;

/** Folders of the system that every command may read. Homes, volumes and temporary folders are not among them. */
const systemFolders = [
  ...["/System", "/Library", "/usr", "/bin", "/sbin", "/opt", "/dev", "/nix", "/Applications/Xcode.app"],
  ...["/private/etc", "/private/var/db", "/private/var/select"],
];
/** Services that act for a command outside of its sandbox: they start programs, read keychains and the clipboard. */
const refusedServices = [
  "com.apple.SecurityServer",
  "com.apple.coreservices.launchservicesd",
  "com.apple.pasteboard.1",
  "com.apple.securityd.xpc",
];

export interface SeatbeltOptions {
  readonly network: SandboxNetwork;
  /** Folders that the command may write. */
  readonly writable: readonly string[];
  /** Further files and folders that the command may read. */
  readonly readable: readonly string[];
}

/** Returns the program and the arguments that run a command in the sandbox; the command follows them. */
export function seatbeltCommand(options: SeatbeltOptions): readonly string[] {
  return [program, "-p", seatbeltProfile(options)];
}

/** Returns the profile, in Seatbelt's language. Later rules have precedence. */
export function seatbeltProfile({ network, writable, readable }: SeatbeltOptions): string {
  const own = subpaths(writable.map(realPath));
  return [
    "(version 1)",
    "(allow default)",
    "(deny file-write*)",
    `(allow file-write* ${own} (literal "/dev/null") (literal "/dev/zero"))`,
    "(deny file-read*)",
    // Programs look up the folders above a path.
    "(allow file-read-metadata)",
    `(allow file-read* (literal "/") ${subpaths(systemFolders)} ${subpaths(readable.map(realPath))} ${own})`,
    ...networkRules(network),
    "(deny signal)",
    "(allow signal (target same-sandbox))",
    "(deny process-info*)",
    "(allow process-info* (target same-sandbox))",
    "(deny appleevent-send)",
    "(deny job-creation)",
    `(deny mach-lookup ${refusedServices.map((name) => `(global-name ${quoted(name)})`).join(" ")})`,
  ].join("\n");
}

/** There is no network of the command's own, so `loopback` would reach the services of this machine: it is `none`. */
function networkRules(network: SandboxNetwork): readonly string[] {
  if (network !== "full") return ["(deny network*)"];
  return [
    "(deny network-outbound (remote unix-socket))",
    // Names are resolved through this socket.
    '(allow network-outbound (literal "/private/var/run/mDNSResponder"))',
  ];
}

function subpaths(paths: readonly string[]): string {
  return paths.map((path) => `(subpath ${quoted(path)})`).join(" ");
}

function quoted(text: string): string {
  return `"${text.replaceAll(/["\\]/g, "\\$&")}"`;
}

/** Rules hold for paths without links. */
function realPath(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return path;
  }
}

/** What the trial found, by the exit code of its shell. */
const problems: Readonly<Record<number, string>> = {
  10: "a command cannot write its own folder",
  11: "a command can write outside of its folder",
  12: "a command can read outside of its folder",
  13: "a command can see other processes",
};

/** Tries the sandbox: writes, reads and looks at processes where it must not. Returns what is wrong; null: it holds. */
export function seatbeltProblem(): string | null {
  const base = mkdtempSync(join(tmpdir(), "troupe-seatbelt-"));
  try {
    const work = join(base, "work");
    mkdirSync(work);
    writeFileSync(join(base, "secret"), "secret");
    const script = `: > "$1/in" || exit 10
(: > "$2/out") 2>/dev/null && exit 11
cat "$2/secret" >/dev/null 2>&1 && exit 12
kill -0 ${process.pid} 2>/dev/null && exit 13
exit 0`;
    const argv = seatbeltCommand({ network: "none", writable: [work], readable: [] });
    const [file = "", ...args] = [...argv, "/bin/sh", "-c", script, "sh", work, base];
    const { status, stderr, error } = spawnSync(file, args, { timeout: PROBE_MS, encoding: "utf8" });
    if (status === 0) return null;
    return problems[status ?? -1] ?? error?.message ?? (stderr.trim().split("\n").at(-1) || `exit code ${status}`);
  } finally {
    rmSync(base, { recursive: true, force: true });
  }
}
