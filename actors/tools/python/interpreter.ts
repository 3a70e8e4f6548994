// Interpreter: one confined Python process with its driver. It runs one cell at a time and keeps the variables between cells.
import type { Readable } from "node:stream";
import type { ConfinedProcess, LimitHit } from "../../../runtime/sandbox/sandbox.ts";
import { BoundedText } from "../bounded-text.ts";
import { marks } from "./marks.ts";

const NEWLINE = 0x0a;
/** Maximum number of characters of each output of a cell. */
const MAX_OUTPUT = 65_536;
/** Maximum number of bytes of a reply of the driver, which contains images as base64. */
const MAX_REPLY_BYTES = 48 * 2 ** 20;
/** Milliseconds from the interrupt of a cell to the end of its interpreter. */
const KILL_AFTER_MS = 2000;

/** What a cell has done. */
export interface CellResult {
  readonly stdout: string;
  readonly stderr: string;
  readonly result: string | null;
  readonly resultType: string | null;
  readonly exception: string | null;
  readonly images: readonly string[];
  readonly frames: readonly string[];
  readonly ms: number;
  readonly isTimeout: boolean;
  /** Whether the interpreter has ended, so that its variables are lost. */
  readonly hasEnded: boolean;
}

interface DriverReply {
  readonly result: string | null;
  readonly result_type: string | null;
  readonly exception: string | null;
  readonly images: readonly string[];
  readonly frames: readonly string[];
  readonly ms: number;
}

export class Interpreter {
  readonly #process: ConfinedProcess;
  readonly #stdout: MarkedOutput;
  readonly #stderr: MarkedOutput;
  #hasEnded = false;
  #nextId = 1;
  #onReply: (reply: DriverReply) => void = () => {};
  /** Parts of the line that is arriving on the driver's channel. */
  #line: Buffer[] = [];
  #lineBytes = 0;

  constructor(process: ConfinedProcess) {
    this.#process = process;
    process.isWatched = false;
    process.stdin.end();
    this.#stdout = new MarkedOutput(process.stdout, marks.stdout);
    this.#stderr = new MarkedOutput(process.stderr, marks.stderr);
    process.channel?.fromCommand.on("data", (chunk: Buffer) => this.#receive(chunk));
    process.channel?.fromCommand.on("error", () => {});
    void process.exited.then(() => {
      this.#hasEnded = true;
    });
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** Path of the work folder as the code sees it. */
  get workFolder(): string {
    return this.#process.workFolder;
  }

  /** Runs a cell. After the time limit it is interrupted, and if that does not help, its interpreter is killed. Never rejects. */
  async run(code: string, timeoutMs: number): Promise<CellResult> {
    const startedAt = performance.now();
    this.#stdout.begin();
    this.#stderr.begin();
    this.#process.isWatched = true;
    let isTimeout = false;
    let killTimer: NodeJS.Timeout | null = null;
    const timer = setTimeout(() => {
      isTimeout = true;
      this.#process.interrupt();
      killTimer = setTimeout(() => void this.#process.kill(), KILL_AFTER_MS);
    }, timeoutMs);
    const replied = new Promise<DriverReply>((resolve) => {
      this.#onReply = resolve;
    });
    this.#process.channel?.toCommand.write(`${JSON.stringify({ id: this.#nextId++, code })}\n`);
    const outcome = await Promise.race([replied, this.#process.exited]);
    clearTimeout(timer);
    if (killTimer !== null) clearTimeout(killTimer);
    this.#process.isWatched = false;
    const ms = performance.now() - startedAt;
    if ("code" in outcome) return this.#endedWith(outcome.limit, outcome.code, isTimeout, ms);
    await Promise.race([Promise.all([this.#stdout.marked, this.#stderr.marked]), this.#process.exited]);
    const { result, result_type: resultType, exception, images, frames, ms: own } = outcome;
    const outputs = { stdout: this.#stdout.text, stderr: this.#stderr.text };
    return { ...outputs, result, resultType, exception, images, frames, ms: own, isTimeout, hasEnded: false };
  }

  async kill(): Promise<void> {
    await this.#process.kill();
  }

  #endedWith(limit: LimitHit, code: number | null, isTimeout: boolean, ms: number): CellResult {
    const why =
      limit !== null
        ? `it exceeded the limit of ${limit}`
        : isTimeout
          ? "it ran too long and did not react to an interrupt"
          : `it ended with exit code ${code}`;
    const exception = `The Python interpreter was ended: ${why}. Its variables are lost; files are kept.`;
    const outputs = { stdout: this.#stdout.end(), stderr: this.#stderr.end() };
    return {
      ...outputs,
      result: null,
      resultType: null,
      exception,
      images: [],
      frames: [],
      ms,
      isTimeout,
      hasEnded: true,
    };
  }

  #receive(chunk: Buffer): void {
    const end = chunk.indexOf(NEWLINE);
    if (end < 0) {
      this.#line.push(chunk);
      this.#lineBytes += chunk.length;
      // The driver writes no such line: code of the cell has written to the channel.
      if (this.#lineBytes > MAX_REPLY_BYTES) {
        this.#line = [];
        this.#lineBytes = 0;
        void this.#process.kill();
      }
      return;
    }
    const line = Buffer.concat([...this.#line, chunk.subarray(0, end)]).toString("utf8");
    const rest = chunk.subarray(end + 1);
    this.#line = [rest];
    this.#lineBytes = rest.length;
    const reply = parsedReply(line);
    // null: code of the cell has written to the channel. If that broke the cell's reply, the time limit ends the cell.
    if (reply !== null) this.#onReply(reply);
  }
}

/** Returns null if the line is no reply of the driver. */
function parsedReply(line: string): DriverReply | null {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    return null;
  }
  if (typeof value !== "object" || value === null) return null;
  const { result, result_type, exception, images, frames, ms } = value as Partial<Record<keyof DriverReply, unknown>>;
  const isReply =
    isTextOrNull(result) &&
    isTextOrNull(result_type) &&
    isTextOrNull(exception) &&
    isTexts(images) &&
    isTexts(frames) &&
    typeof ms === "number";
  return isReply ? { result, result_type, exception, images, frames, ms } : null;
}

function isTextOrNull(value: unknown): value is string | null {
  return value === null || typeof value === "string";
}

function isTexts(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every((one) => typeof one === "string");
}

/** Output of a process, cell by cell. The output of a cell ends with a mark. */
class MarkedOutput {
  readonly #mark: Buffer;
  #text = new BoundedText(MAX_OUTPUT);
  /** Bytes at the end that may be the beginning of the mark. */
  #held: Buffer = Buffer.alloc(0);
  #onMark: () => void = () => {};
  marked: Promise<void> = Promise.resolve();

  constructor(stream: Readable, mark: string) {
    this.#mark = Buffer.from(mark);
    stream.on("data", (chunk: Buffer) => this.#add(chunk));
    stream.on("error", () => {});
  }

  /** Begins the output of the next cell. Output that came since the last mark, for example of a thread, belongs to it. */
  begin(): void {
    this.marked = new Promise((resolve) => {
      this.#onMark = resolve;
    });
  }

  /** Takes the output of the cell. */
  get text(): string {
    const { text } = this.#text;
    this.#text = new BoundedText(MAX_OUTPUT);
    return text;
  }

  /** Takes the output of a process that has ended, which may lack the mark. */
  end(): string {
    this.#text.add(this.#held);
    this.#held = Buffer.alloc(0);
    return this.text;
  }

  #add(chunk: Buffer): void {
    const bytes = this.#held.length === 0 ? chunk : Buffer.concat([this.#held, chunk]);
    const at = bytes.indexOf(this.#mark);
    if (at >= 0) {
      this.#text.add(bytes.subarray(0, at));
      this.#held = Buffer.from(bytes.subarray(at + this.#mark.length));
      this.#onMark();
      return;
    }
    const kept = Math.min(bytes.length, this.#mark.length - 1);
    this.#text.add(bytes.subarray(0, bytes.length - kept));
    this.#held = Buffer.from(bytes.subarray(bytes.length - kept));
  }
}
