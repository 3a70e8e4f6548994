// Server under attack: `troupe serve` of any built checkout in a process of its own, and what can be seen of it from outside:
// its log, its memory, how late its event loop is. Reads /proc, so it runs on Linux only.
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
/** Characters of the log that are kept. */
const keptLog = 4 * 2 ** 20;

/** What a probe changes in the usual server. */
export type ServerChanges = Partial<
  Pick<ServerSettings, "models" | "flags" | "nodeFlags" | "wrapper" | "hasAccessLog">
>;

export interface ServerSettings {
  /** A built checkout. */
  readonly directory: string;
  readonly edge: EdgeName;
  readonly engine: EngineName;
  readonly models: readonly string[];
  readonly stateDir: string;
  /** Flags of `troupe serve`, behind the usual ones. */
  readonly flags?: readonly string[];
  readonly nodeFlags?: readonly string[];
  /** Command that starts the program behind it, such as `prlimit`. */
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

  /** Starts it and waits until its models are loaded. Throws `config_invalid` with its output where it does not start. */
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

  /** All that it has printed lately. */
  get log(): string {
    return this.#printed.text;
  }

  /** Process ids of the engines that have processes of their own, as the log has them. */
  get enginePids(): number[] {
    const found = [...this.log.matchAll(/"enginePid":(\d+)/g)].map(([, pid]) => Number(pid));
    return found.filter((pid) => pid !== this.pid);
  }

  /** Process id of the engine that loaded the model last; null where it has no process of its own. */
  enginePidOf(model: string): number | null {
    const lines = this.log.split("\n").filter((line) => line.includes('"model loaded"') && line.includes(`"${model}"`));
    const pid = Number(/"enginePid":(\d+)/.exec(lines.at(-1) ?? "")?.[1] ?? 0);
    return pid === 0 || pid === this.pid ? null : pid;
  }

  /** Nobody reads its error output from now on. */
  stopReading(): void {
    this.#child.stderr?.pause();
  }

  readOn(): void {
    this.#child.stderr?.resume();
  }

  /** Longest delay of its event loop since the last call; NaN where it does not answer in time. */
  async takeFrontDelayMs(limitMs = 10_000): Promise<number> {
    if (this.hasEnded || !this.#child.connected) return Number.NaN;
    const answer = once(this.#child, "message", { signal: AbortSignal.timeout(limitMs) });
    this.#child.send("take", () => {});
    return answer.then(
      ([delay]) => (delay as LoopDelay).max,
      () => Number.NaN,
    );
  }

  /** Memory of all its processes, without pages of files. */
  ownMiB(): number {
    return family([this.pid]).reduce((sum, pid) => sum + ownKiB(pid), 0) / 1024;
  }

  /** Cores that its process has kept busy since the last call. */
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

/** A port that is free now. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

/** The last part of what a process prints. */
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
