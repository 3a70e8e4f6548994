// Server under attack: `troupe serve` of any built checkout, in a separate process, observed from outside by its log, memory
// and event loop delay. Reads /proc, so it runs on Linux only.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { EngineName } from "../../../engines/engine.ts";
import type { EdgeName } from "../../../http/server/listen.ts";
import { ServerError } from "../../../runtime/errors.ts";
import type { LoopDelay } from "../../loop-delay.ts";
import { family, ownKiB, processSeconds } from "../../proc.ts";

const loopDelayProbe = new URL("../../serving/loop-delay-probe.js", import.meta.url);
const stopLimitMs = 3000;
const pollMs = 20;
/** Maximum characters kept of the log. */
const keptLog = 4 * 2 ** 20;

/** Settings of the server that a probe may change. */
export type ServerChanges = Partial<
  Pick<ServerSettings, "models" | "flags" | "nodeFlags" | "wrapper" | "hasAccessLog">
>;

export interface ServerSettings {
  /** Folder of a built checkout. */
  readonly directory: string;
  readonly edge: EdgeName;
  readonly engine: EngineName;
  readonly models: readonly string[];
  readonly stateDir: string;
  /** Flags of `troupe serve`, appended to the usual ones. */
  readonly flags?: readonly string[];
  readonly nodeFlags?: readonly string[];
  /** Command that starts the program given after it, such as `prlimit`. */
  readonly wrapper?: readonly string[];
  readonly hasAccessLog?: boolean;
  readonly startLimitMs?: number;
}

export class HostileServer {
  readonly url: string;
  readonly pid: number;
  readonly #child: ChildProcess;
  readonly #printed: Printed;
  #cpuMark: { seconds: number; atMs: number };

  private constructor(child: ChildProcess, url: string, printed: Printed) {
    this.#child = child;
    this.#printed = printed;
    this.url = url;
    this.pid = child.pid ?? 0;
    this.#cpuMark = { seconds: processSeconds(this.pid), atMs: performance.now() };
  }

  /** Starts the server and waits until its models are loaded. Throws `config_invalid` with the output if it does not start. */
  static async start(settings: ServerSettings): Promise<HostileServer> {
    const [program = "", ...args] = commandOf(settings);
    const child = spawn(program, args, {
      stdio: ["ignore", "pipe", "pipe", "ipc"],
      env: { ...process.env, XDG_STATE_HOME: settings.stateDir },
    });
    const kill = () => child.kill("SIGKILL");
    process.once("exit", kill);
    child.once("exit", () => process.off("exit", kill));
    const printed = new Printed(child);
    const ended = once(child, "exit");
    const url = await urlFrom(child, printed, settings.startLimitMs ?? 120_000);
    if (url !== null) return new HostileServer(child, url, printed);
    const isLate = !hasEnded(child);
    child.kill("SIGKILL");
    await ended;
    throw new ServerError("config_invalid", `the server did not start${isLate ? " in time" : ""}\n${printed.text}`);
  }

  get port(): number {
    return Number(new URL(this.url).port);
  }

  get hasEnded(): boolean {
    return hasEnded(this.#child);
  }

  /** The latest output of the server. */
  get log(): string {
    return this.#printed.text;
  }

  /** Process ids of the engine processes, read from the log. */
  get enginePids(): number[] {
    const found = [...this.log.matchAll(/"enginePid":(\d+)/g)].map(([, pid]) => Number(pid));
    return found.filter((pid) => pid !== this.pid);
  }

  /** Returns the id of the engine process that loaded the model last; null if the engine has no separate process. */
  enginePidOf(model: string): number | null {
    const lines = this.log.split("\n").filter((line) => line.includes('"model loaded"') && line.includes(`"${model}"`));
    const pid = Number(/"enginePid":(\d+)/.exec(lines.at(-1) ?? "")?.[1] ?? 0);
    return pid === 0 || pid === this.pid ? null : pid;
  }

  /** Stops reading the server's error output. */
  stopReading(): void {
    this.#child.stderr?.pause();
  }

  readOn(): void {
    this.#child.stderr?.resume();
  }

  /** Returns the maximum delay of the server's event loop since the last call; NaN if it does not respond in time. */
  async takeFrontDelayMs(limitMs = 10_000): Promise<number> {
    if (this.hasEnded || !this.#child.connected) return Number.NaN;
    const answer = once(this.#child, "message", { signal: AbortSignal.timeout(limitMs) });
    this.#child.send("take", () => {});
    return answer.then(
      ([delay]) => (delay as LoopDelay).max,
      () => Number.NaN,
    );
  }

  /** Memory of all processes of the server in MiB, without file-backed pages. */
  ownMiB(): number {
    return family([this.pid]).reduce((sum, pid) => sum + ownKiB(pid), 0) / 1024;
  }

  /** Average number of cores the server's process has kept busy since the last call. */
  takeLoad(): number {
    const now = { seconds: processSeconds(this.pid), atMs: performance.now() };
    const { seconds, atMs } = this.#cpuMark;
    this.#cpuMark = now;
    return ((now.seconds - seconds) * 1000) / (now.atMs - atMs);
  }

  kill(): void {
    this.#child.kill("SIGKILL");
  }

  async stop(): Promise<void> {
    if (this.hasEnded) return;
    const ended = once(this.#child, "exit");
    this.readOn();
    this.#child.kill("SIGTERM");
    const timer = setTimeout(() => this.kill(), stopLimitMs);
    await ended;
    clearTimeout(timer);
  }
}

/** Returns a port that is free now. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

/** Keeps the last part of a process's output. */
class Printed {
  text = "";

  constructor({ stdout, stderr }: ChildProcess) {
    const keep = (data: Buffer): void => {
      this.text = (this.text + data).slice(-keptLog);
    };
    stdout?.on("data", keep);
    stderr?.on("data", keep);
  }
}

function commandOf({ directory, edge, engine, models, ...rest }: ServerSettings): string[] {
  const { flags = [], nodeFlags = [], wrapper = [], hasAccessLog = false } = rest;
  return [
    ...wrapper,
    ...[process.execPath, ...nodeFlags, `--import=${loopDelayProbe}`, join(directory, "cli/troupe.mjs"), "serve"],
    ...models.flatMap((model) => ["-m", model]),
    ...["--host", "127.0.0.1", "--port", "0", "--cpu", "--edge", edge, "--engine", engine],
    ...["--access-log-format", "json", ...(hasAccessLog ? [] : ["--disable-access-log"])],
    ...flags,
  ];
}

function hasEnded({ exitCode, signalCode }: ChildProcess): boolean {
  return exitCode !== null || signalCode !== null;
}

async function urlFrom(child: ChildProcess, printed: Printed, limitMs: number): Promise<string | null> {
  const limit = performance.now() + limitMs;
  while (performance.now() < limit && !hasEnded(child)) {
    const url = /health\s+(http:\/\/\S+)\/health/.exec(printed.text)?.[1];
    if (url !== undefined) return url;
    await sleep(pollMs);
  }
  return null;
}
