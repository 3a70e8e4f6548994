// Server under test: the real `troupe serve` in a separate process, observed from outside by its log, memory, CPU time and
// connections. Reads /proc, so it runs on Linux only.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { ServerError } from "../../runtime/errors.ts";
import { troupe } from "../command.ts";
import { processSeconds, residentKiB } from "../proc.ts";
import { slots } from "./workload.ts";

const collector = new URL("./collect.js", import.meta.url);
const warning = 40;
/** Pattern of the log message of an intended rejection. */
const ofRefusals = /^requests are refused/;
const established = "01";

export interface ScenarioOptions {
  readonly model: string;
  /** Compute threads of the server; 0 = the server's default. */
  readonly threads: number;
  /** Number of repetitions of measurements that vary. */
  readonly rounds: number;
}

interface LogLine {
  readonly level: number;
  readonly msg: string;
  readonly reason?: string;
  readonly enginePid?: number;
}

export interface ResidentMiB {
  readonly server: number;
  readonly engine: number;
}

export class Server {
  readonly port: number;
  readonly #child: ChildProcess;
  readonly #log: () => readonly LogLine[];

  private constructor(child: ChildProcess, port: number, log: () => readonly LogLine[]) {
    this.#child = child;
    this.#log = log;
    this.port = port;
  }

  /** Starts the server with 32 slots and waits until it is ready. */
  static async start({ model, threads }: ScenarioOptions, flags: readonly string[]): Promise<Server> {
    const place = ["--host", "127.0.0.1", "--port", "0", "--engine", "llama", "--cpu"];
    const log = ["--disable-access-log", "--access-log-format", "json"];
    const sizes = ["--threads", String(threads), "--max-seqs", String(slots), "--kv-cache", "65536tokens"];
    const child = spawn(process.execPath, [troupe, "serve", "-m", model, ...place, ...log, ...sizes, ...flags], {
      env: { ...process.env, NODE_OPTIONS: `--import=${collector}` },
      stdio: ["ignore", "pipe", "pipe"],
    });
    const stopWithUs = () => child.kill("SIGKILL");
    process.once("exit", stopWithUs);
    child.once("exit", () => process.off("exit", stopWithUs));
    let logged = "";
    child.stderr.on("data", (data: Buffer) => {
      logged += data;
    });
    const port = await portFrom(child, () => logged);
    return new Server(child, port, () => linesOf(logged));
  }

  /** Returns the warnings and errors of the log, except for intended rejections. */
  complaints(): string[] {
    return this.#log()
      .filter(({ level, msg }) => level >= warning && !ofRefusals.test(msg))
      .map(({ msg, reason }) => (reason === undefined ? msg : `${msg} (${reason})`));
  }

  residentMiB(): ResidentMiB {
    return { server: residentKiB(this.#child.pid ?? 0) / 1024, engine: residentKiB(this.#enginePid) / 1024 };
  }

  /** Makes every thread of the server's process and of the engine's process collect its garbage. */
  async collectGarbage(): Promise<void> {
    this.#child.kill("SIGUSR2");
    process.kill(this.#enginePid, "SIGUSR2");
    await sleep(1000);
  }

  /** Returns the share of one core that the engine's process uses over the next half second. */
  async engineLoad(): Promise<number> {
    const before = processSeconds(this.#enginePid);
    const seconds = 0.5;
    await sleep(seconds * 1000);
    return (processSeconds(this.#enginePid) - before) / seconds;
  }

  /** Number of connections that the server has not closed. */
  connectionCount(): number {
    const rows = readFileSync(`/proc/${this.#child.pid}/net/tcp`, "utf8").split("\n").slice(1);
    const port = this.port.toString(16).toUpperCase().padStart(4, "0");
    return rows.filter((row) => {
      const [, local, , state] = row.trim().split(/\s+/);
      return local?.endsWith(`:${port}`) && state === established;
    }).length;
  }

  async stop(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const ended = once(this.#child, "exit");
    this.#child.kill("SIGTERM");
    await ended;
  }

  get #enginePid(): number {
    return this.#log().findLast(({ enginePid }) => enginePid !== undefined)?.enginePid ?? 0;
  }
}

/** Runs work on a server, and stops the server even if the work fails. */
export async function withServer<T>(
  options: ScenarioOptions,
  flags: readonly string[],
  work: (server: Server) => Promise<T>,
): Promise<T> {
  const server = await Server.start(options, flags);
  try {
    return await work(server);
  } finally {
    await server.stop();
  }
}

async function portFrom(child: ChildProcess, logged: () => string): Promise<number> {
  let greeting = "";
  if (child.stdout) {
    for await (const data of child.stdout.iterator({ destroyOnReturn: false })) {
      greeting += data;
      const port = /health\s+http:\/\/[^:]+:(\d+)\/health/.exec(greeting)?.[1];
      if (port) return Number(port);
    }
  }
  throw new ServerError("internal", `the server did not start:\n${greeting}${logged()}`);
}

function linesOf(logged: string): LogLine[] {
  const whole = logged.slice(0, logged.lastIndexOf("\n") + 1).split("\n");
  return whole.filter((line) => line.startsWith("{")).map((line) => JSON.parse(line) as LogLine);
}
