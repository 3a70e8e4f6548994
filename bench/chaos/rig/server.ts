// Server of the chaos suite: the real command on a port that stays, which can be killed and started again. Its threads can be
// ended or blocked through Node's inspector.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createWriteStream, type WriteStream } from "node:fs";
import { fileURLToPath } from "node:url";
import { WebSocket } from "ws";
import { childrenOf } from "../../proc.ts";

const command = fileURLToPath(new URL("../../../../cli/troupe.mjs", import.meta.url));
const startLimitMs = 180_000;
const keptLog = 400_000;

export interface ServerOptions {
  readonly port: number;
  readonly config: string;
  readonly flags: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
  /** File to which everything that the server prints is appended. */
  readonly logFile: string;
}

/** A time in which the server did not answer because its process was dead or being started. */
export interface Downtime {
  readonly fromMs: number;
  toMs: number;
}

export class ChaosServer {
  readonly url: string;
  readonly downtimes: Downtime[] = [];
  readonly #options: ServerOptions;
  readonly #file: WriteStream;
  #child: ChildProcess | null = null;
  #log = "";
  #isReady = false;

  constructor(options: ServerOptions) {
    this.#options = options;
    this.#file = createWriteStream(options.logFile, { flags: "a" });
    this.url = `http://127.0.0.1:${options.port}`;
    this.downtimes.push({ fromMs: 0, toMs: Number.POSITIVE_INFINITY });
    process.on("exit", () => this.#child?.kill("SIGKILL"));
  }

  get pid(): number {
    return this.#child?.pid ?? 0;
  }

  get isUp(): boolean {
    return this.#isReady && this.#child !== null && this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /** Last part of what the server has printed since its start. */
  get log(): string {
    return this.#log;
  }

  /** Exit code or signal of a process that has ended. */
  get exit(): number | string | null {
    return this.#child?.signalCode ?? this.#child?.exitCode ?? null;
  }

  /** Ids of the processes of its places. */
  get places(): number[] {
    return this.#child === null ? [] : childrenOf(this.pid);
  }

  /** Starts the process and waits until it serves. */
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

  /** Whether the process was down at any time between two times. */
  wasDown(fromMs: number, toMs: number): boolean {
    return this.downtimes.some((down) => down.fromMs <= toMs && down.toMs >= fromMs);
  }

  signal(name: NodeJS.Signals): void {
    this.#child?.kill(name);
  }

  /** Ends the process and waits for its end. */
  async end(signal: NodeJS.Signals = "SIGKILL"): Promise<number | string | null> {
    const child = this.#child;
    if (child === null) return null;
    if (child.exitCode === null && child.signalCode === null) {
      // A server that drains accepts no connections, and the end of a killed one may be known late on a busy machine.
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
    this.#file.end();
  }

  /** Runs a text of JavaScript on the threads whose name fits. Returns the names of these threads. */
  async evaluate(fits: (name: string) => boolean, expression: string): Promise<string[]> {
    const inspector = await Inspector.open(/ws:\/\/\S+/.exec(this.#log)?.[0] ?? "");
    try {
      const threads = (await inspector.threads()).filter(({ name }) => fits(name));
      for (const { session } of threads) inspector.evaluate(session, expression);
      await inspector.settle();
      return threads.map(({ name }) => name);
    } finally {
      inspector.close();
    }
  }

  /** Runs a text of JavaScript on the main thread and returns its value. */
  async ask(expression: string): Promise<unknown> {
    const inspector = await Inspector.open(/ws:\/\/\S+/.exec(this.#log)?.[0] ?? "");
    try {
      return await inspector.ask(expression);
    } finally {
      inspector.close();
    }
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

/** Time within which a thread answers, on a machine with other load too. */
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
    void this.#call("NodeWorker.sendMessageToWorker", { sessionId: session, message });
  }

  async ask(expression: string): Promise<unknown> {
    const params = { expression, returnByValue: true, awaitPromise: true };
    const { result } = (await this.#call("Runtime.evaluate", params)) as { result: { value?: unknown } };
    return result.value;
  }

  /** Waits until the messages so far have been taken. */
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
