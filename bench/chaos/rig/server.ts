// Server of the chaos suite: runs the real `troupe` command on a fixed port. It can be killed and restarted. Its threads can be
// ended or blocked through Node's inspector.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createWriteStream, type WriteStream } from "node:fs";
import { fileURLToPath } from "node:url";
import { WebSocket } from "ws";
import { childrenOf, isRunning } from "../../proc.ts";

const command = fileURLToPath(new URL("../../../../cli/troupe.mjs", import.meta.url));
const startLimitMs = 180_000;
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
  /** Resolves when the last use of the inspector has ended. */
  #inspection: Promise<unknown> = Promise.resolve();
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
    const child = spawn(process.execPath, ["--inspect=127.0.0.1:0", "--expose-gc", command, ...argv], {
      env: { ...process.env, ...environment },
      stdio: ["ignore", "pipe", "pipe"],
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

  /** Runs JavaScript code on the worker threads whose name passes `fits`. Returns the names of these threads. */
  async evaluate(fits: (name: string) => boolean, expression: string): Promise<string[]> {
    return await this.#inspected(async (inspector) => {
      const threads = (await inspector.threads()).filter(({ name }) => fits(name));
      for (const { session } of threads) inspector.evaluate(session, expression);
      await inspector.settle();
      return threads.map(({ name }) => name);
    });
  }

  /** Runs JavaScript code on the main thread and returns its value. */
  async ask(expression: string): Promise<unknown> {
    return await this.#inspected((inspector) => inspector.ask(expression));
  }

  /** Connects to Node's inspector for the time of `use`: one connection at a time, because Node aborted with two. */
  async #inspected<Value>(use: (inspector: Inspector) => Promise<Value>): Promise<Value> {
    const earlier = this.#inspection;
    const run = async (): Promise<Value> => {
      await earlier;
      const inspector = await Inspector.open(/ws:\/\/\S+/.exec(this.#log)?.[0] ?? "");
      try {
        return await use(inspector);
      } finally {
        inspector.close();
      }
    };
    const result = run();
    this.#inspection = result.catch(() => {});
    return await result;
  }

  #down(): void {
    this.#isReady = false;
    const last = this.downtimes.at(-1);
    if (last !== undefined && !Number.isFinite(last.toMs)) return;
    this.downtimes.push({ fromMs: performance.now(), toMs: Number.POSITIVE_INFINITY });
  }
}

interface Thread {
  readonly session: string;
  readonly name: string;
}

/** Time limit in ms for a reply of the inspector: long enough for a machine with other load. */
const inspectorLimitMs = 60_000;

/** Connection to Node's inspector. */
class Inspector {
  readonly #socket: WebSocket;
  readonly #threads: Thread[] = [];
  readonly #replies = new Map<number, (value: unknown) => void>();
  #id = 0;

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.on("error", () => {});
    socket.on("message", (data) => this.#take(JSON.parse(String(data)) as InspectorMessage));
  }

  static async open(url: string): Promise<Inspector> {
    const socket = new WebSocket(url, { handshakeTimeout: inspectorLimitMs });
    await once(socket, "open");
    return new Inspector(socket);
  }

  async threads(): Promise<readonly Thread[]> {
    await this.#call("NodeWorker.enable", { waitForDebuggerOnStart: false });
    return this.#threads;
  }

  evaluate(session: string, expression: string): void {
    const message = JSON.stringify({ id: 1, method: "Runtime.evaluate", params: { expression } });
    // The server may be killed before it replies.
    this.#call("NodeWorker.sendMessageToWorker", { sessionId: session, message }).catch(() => {});
  }

  async ask(expression: string): Promise<unknown> {
    const params = { expression, returnByValue: true, awaitPromise: true };
    const { result } = (await this.#call("Runtime.evaluate", params)) as { result: { value?: unknown } };
    return result.value;
  }

  /** Waits until the main thread has received all earlier messages. */
  async settle(): Promise<void> {
    await this.#call("Runtime.evaluate", { expression: "0" });
  }

  close(): void {
    this.#socket.terminate();
  }

  #call(method: string, params: object): Promise<unknown> {
    const id = ++this.#id;
    this.#socket.send(JSON.stringify({ id, method, params }));
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`${method}: no answer`)), inspectorLimitMs);
      this.#replies.set(id, (value) => {
        clearTimeout(timer);
        resolve(value);
      });
      this.#socket.once("close", () => {
        clearTimeout(timer);
        reject(new Error("the inspector has closed"));
      });
    });
  }

  #take({ id, result, method, params }: InspectorMessage): void {
    if (id !== undefined) this.#replies.get(id)?.(result);
    if (method !== "NodeWorker.attachedToWorker" || params === undefined) return;
    const name = params.workerInfo.title.replace(/^\[worker \d+\] ?/, "");
    this.#threads.push({ session: params.sessionId, name });
  }
}

interface InspectorMessage {
  readonly id?: number;
  readonly result?: unknown;
  readonly method?: string;
  readonly params?: { readonly sessionId: string; readonly workerInfo: { readonly title: string } };
}
