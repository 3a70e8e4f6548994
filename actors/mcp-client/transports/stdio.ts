// Stdio transport: sends messages over the stdin and stdout of a server process, one JSON message per line, of bounded length.
import type { JSONRPCMessage, Transport } from "@modelcontextprotocol/client";
import { resolvesWithin } from "../../../runtime/clock.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { maxJunkLines, maxMessageBytes, tooLarge } from "./limits.ts";
import { LineReader } from "./line-reader.ts";
import { messageIn } from "./message-in.ts";
import type { ServerProcess } from "./server-process.ts";

/** Maximum number of bytes that are buffered for a server that does not read its stdin. */
const MAX_UNREAD_BYTES = 16 * 2 ** 20;
/** Milliseconds that a server has to exit after its stdin was closed, before it is killed. */
const STOP_MS = 2000;
/** Milliseconds to read the last output of a process that has ended. */
const LAST_OUTPUT_MS = 500;

export class StdioTransport implements Transport {
  onclose?: () => void;
  onerror?: (error: Error) => void;
  onmessage?: (message: JSONRPCMessage) => void;
  readonly #launch: () => Promise<ServerProcess>;
  readonly #onStderr: (chunk: Buffer) => void;
  readonly #onEnd: (reason: string) => void;
  #process: ServerProcess | null = null;
  #junkLines = 0;
  #hasEnded = false;

  /** `onEnd`: called with the reason if the server ends the connection. */
  constructor(
    launch: () => Promise<ServerProcess>,
    onStderr: (chunk: Buffer) => void,
    onEnd: (reason: string) => void,
  ) {
    this.#launch = launch;
    this.#onStderr = onStderr;
    this.#onEnd = onEnd;
  }

  async start(): Promise<void> {
    const running = await this.#launch();
    this.#process = running;
    const reader = new LineReader(maxMessageBytes, (line) => this.#read(line));
    running.stdout.on("data", (chunk: Buffer) => {
      if (!this.#hasEnded && !reader.add(chunk)) this.#end(tooLarge);
    });
    running.stderr.on("data", this.#onStderr);
    const closed = new Promise<void>((resolve) => running.stdout.once("close", resolve));
    void running.exited.then(async (reason) => {
      await resolvesWithin(LAST_OUTPUT_MS, closed);
      this.#end(reason);
    });
    running.stdout.once("end", () => setImmediate(() => void this.#onOutputEnd(running)));
  }

  async send(message: JSONRPCMessage): Promise<void> {
    const stdin = this.#process?.stdin;
    if (stdin === undefined || this.#hasEnded) throw new ServerError("peer_gone", "its process has ended");
    if (stdin.writableLength > MAX_UNREAD_BYTES) throw new ServerError("queue_full", "it does not read its stdin");
    stdin.write(`${JSON.stringify(message)}\n`);
  }

  /** Closes the server's stdin, and kills the server if it does not exit. */
  async close(): Promise<void> {
    const running = this.#process;
    this.#end(null);
    if (running === null) return;
    running.stdin.end();
    if (!(await resolvesWithin(STOP_MS, running.exited))) running.kill();
  }

  /** Ends the connection to a process that has closed its stdout but keeps running, because it cannot respond any more. */
  async #onOutputEnd(running: ServerProcess): Promise<void> {
    if (!(await resolvesWithin(LAST_OUTPUT_MS, running.exited))) this.#end("it closed its stdout");
  }

  #read(line: string): void {
    if (this.#hasEnded || line === "") return;
    const message = messageIn(line);
    if (message === null) {
      if (++this.#junkLines > maxJunkLines)
        this.#end(`it printed ${maxJunkLines} lines that are not JSON-RPC messages`);
      return;
    }
    this.#junkLines = 0;
    this.onmessage?.(message);
  }

  /** Ends the connection. `reason`: why the server ended it; null = this side closes it. */
  #end(reason: string | null): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    if (reason !== null) {
      this.#onEnd(reason);
      this.#process?.kill();
    }
    this.onclose?.();
  }
}
