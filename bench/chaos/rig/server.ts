// Server of the chaos suite: runs the real `troupe` command on a fixed port. It can be killed and restarted, and its threads can be
// ended or blocked (control.ts).
import { type ChildProcess, spawn } from "node:child_process";
import { on, once } from "node:events";
import { createWriteStream, type WriteStream } from "node:fs";
import { fileURLToPath } from "node:url";
import { childrenOf, isRunning } from "../../proc.ts";
import type { Order, Reply, ThreadOrder } from "./control.ts";

const command = fileURLToPath(new URL("../../../../cli/troupe.mjs", import.meta.url));
const control = new URL("./control.js", import.meta.url).href;
const startLimitMs = 180_000;
/** Time limit in ms for a reply: a snapshot of the heap takes several seconds, and more on a machine with other load. */
const replyLimitMs = 60_000;
const keptLog = 400_000;

export interface ServerOptions {
  readonly port: number;
  readonly config: string;
  readonly flags: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
  /** File to which the server's whole output is appended. */
  readonly logFile: string;
}

/** Period in which the server could not respond, because its process had ended or was starting. */
export interface Downtime {
  readonly fromMs: number;
  toMs: number;
}

export class ChaosServer {
  readonly url: string;
  readonly logFile: string;
  readonly downtimes: Downtime[] = [];
  readonly #options: ServerOptions;
  readonly #file: WriteStream;
  #child: ChildProcess | null = null;
  #log = "";
  #isReady = false;
  #orders = 0;
  readonly #kill = (): void => void this.#child?.kill("SIGKILL");

  constructor(options: ServerOptions) {
    this.#options = options;
    this.logFile = options.logFile;
    this.#file = createWriteStream(this.logFile, { flags: "a" });
    this.url = `http://127.0.0.1:${options.port}`;
    this.downtimes.push({ fromMs: 0, toMs: Number.POSITIVE_INFINITY });
    process.on("exit", this.#kill);
  }

  get pid(): number {
    return this.#child?.pid ?? 0;
  }

  get isUp(): boolean {
    return this.#isReady && this.#child !== null && this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /** Last part of the server's output since its latest start. */
  get log(): string {
    return this.#log;
  }

  /** Exit code or signal of the server's process; null while it runs. */
  get exit(): number | string | null {
    return this.#child?.signalCode ?? this.#child?.exitCode ?? null;
  }

  /**
   * Process ids of the server's child processes (actors in separate processes) that run. A child that was started by a thread
   * that has ended stays as a zombie, because only that thread's event loop would have read its exit code.
   */
  get places(): number[] {
    return this.#child === null ? [] : childrenOf(this.pid).filter(isRunning);
  }

  /** Starts the server and waits until it accepts requests. */
  async start(): Promise<void> {
    const { port, config, flags, environment } = this.#options;
    const argv = ["from-config", "-f", config, "--host", "127.0.0.1", "--port", String(port), ...flags];
    const child = spawn(process.execPath, [`--import=${control}`, "--expose-gc", command, ...argv], {
      env: { ...process.env, ...environment },
      stdio: ["ignore", "pipe", "pipe", "ipc"],
    });
    this.#child = child;
    this.#log = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream?.on("data", (data: Buffer) => {
        this.#log = (this.#log + data).slice(-keptLog);
        this.#file.write(data);
      });
    }
    child.once("exit", () => this.#down());
    const until = performance.now() + startLimitMs;
    while (!/health\s+http/.test(this.#log)) {
      if (child.exitCode !== null || child.signalCode !== null || performance.now() > until) {
        child.kill("SIGKILL");
        throw new Error(`the server did not start (${child.exitCode ?? child.signalCode}):\n${this.#log.slice(-3000)}`);
      }
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    this.#isReady = true;
    const last = this.downtimes.at(-1);
    if (last !== undefined) last.toMs = performance.now();
  }

  /** Whether the server was down at any moment between `fromMs` and `toMs`. */
  wasDown(fromMs: number, toMs: number): boolean {
    return this.downtimes.some((down) => down.fromMs <= toMs && down.toMs >= fromMs);
  }

  signal(name: NodeJS.Signals): void {
    this.#child?.kill(name);
  }

  /** Sends the signal and waits until the process has exited. Returns its exit code or signal. */
  async end(signal: NodeJS.Signals = "SIGKILL"): Promise<number | string | null> {
    const child = this.#child;
    if (child === null) return null;
    if (child.exitCode === null && child.signalCode === null) {
      // The server counts as down from now on: a draining server accepts no connections, and on a busy machine the exit of a killed
      // process may be noticed late.
      this.#down();
      const exit = once(child, "exit");
      child.kill(signal);
      const timer = setTimeout(() => child.kill("SIGKILL"), startLimitMs);
      await exit;
      clearTimeout(timer);
    }
    return child.exitCode ?? child.signalCode;
  }

  close(): void {
    process.off("exit", this.#kill);
    this.#file.end();
  }

  /**
   * Ends the threads of a name as a crash would, or blocks them. Resolves when the main thread has passed the order on, or when the
   * server has ended.
   */
  async order(order: ThreadOrder): Promise<void> {
    if (!this.isUp) return;
    const reply = await this.#sent(order);
    if (reply?.done === 0) throw new Error(`no thread of the server has had the name ${order.thread}`);
  }

  /** Returns the bytes that the main thread's heap uses after a garbage collection, and writes its snapshot to a path, if given. */
  async heapBytes(snapshot: string | null = null): Promise<number> {
    const reply = await this.#sent({ snapshot });
    if (reply === null) throw new Error("the server ended before it reported its heap");
    return reply.done;
  }

  /** Sends a message to the server's main thread. Returns the reply, or null if the server ends before. */
  async #sent(order: Order["order"]): Promise<Reply | null> {
    const child = this.#child;
    const number = this.#orders++;
    if (child === null || this.exit !== null || !child.connected) return null;
    const replies = on(child, "message", { close: ["exit"], signal: AbortSignal.timeout(replyLimitMs) });
    child.send({ number, order } satisfies Order, () => {});
    for await (const [message] of replies) {
      const reply = message as Reply;
      if (reply.number === number) return reply;
    }
    return null;
  }

  #down(): void {
    this.#isReady = false;
    const last = this.downtimes.at(-1);
    if (last !== undefined && !Number.isFinite(last.toMs)) return;
    this.downtimes.push({ fromMs: performance.now(), toMs: Number.POSITIVE_INFINITY });
  }
}
