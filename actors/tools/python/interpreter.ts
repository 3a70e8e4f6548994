// Interpreter: one sandboxed Python process with its driver. It runs one cell (the code of one Python call) at a time and keeps
// the variables between cells. The code of a cell runs in the same process as the driver, so no data from this process is
// trusted.
import { z } from "zod";
import { resolvesWithin } from "../../../runtime/clock.ts";
import type { ConfinedExit, ConfinedProcess } from "../../../runtime/sandbox/sandbox.ts";
import type { BoundedText } from "../bounded-text.ts";
import { MAX_FRAMES, MAX_IMAGES } from "./driver.ts";
import { DriverChannel, type Reply } from "./driver-channel.ts";
import { MarkedOutput } from "./marked-output.ts";
import { marks } from "./marks.ts";

/** Milliseconds between the interrupt of a cell and the kill of its interpreter. */
const KILL_AFTER_MS = 2000;
/** Maximum time in ms, after the reply, to wait for the delimiters that end the outputs. The driver writes them before the reply. */
const MARK_MS = 1000;

/** PNG file in base64. */
const picture = z.string().refine((text) => text.startsWith("iVBORw0KGgo") && !/[^A-Za-z0-9+/=]/.test(text));
const driverReply = z.object({
  result: z.string().nullable(),
  result_type: z.string().max(512).nullable(),
  exception: z.string().nullable(),
  images: z.array(picture).max(MAX_IMAGES),
  frames: z.array(picture).max(MAX_FRAMES),
  left_out: z.int().min(0),
  ms: z.number(),
});

export interface CellResult {
  readonly stdout: BoundedText;
  readonly stderr: BoundedText;
  readonly result: string | null;
  readonly resultType: string | null;
  readonly exception: string | null;
  readonly images: readonly string[];
  readonly frames: readonly string[];
  /** Number of images that were dropped because there were too many or they were too large. */
  readonly picturesLeftOut: number;
  readonly ms: number;
  readonly isTimeout: boolean;
}

export class Interpreter {
  readonly #process: ConfinedProcess;
  readonly #stdout: MarkedOutput;
  readonly #stderr: MarkedOutput;
  readonly #channel: DriverChannel;
  #exit: ConfinedExit | null = null;
  /** Called when the process has ended while a cell runs. */
  #onExit: (exit: ConfinedExit) => void = () => {};

  /** `process` must have been started with a channel. */
  constructor(process: ConfinedProcess) {
    this.#process = process;
    process.isWatched = false;
    process.stdin.end();
    this.#stdout = new MarkedOutput(process.stdout, marks.stdout);
    this.#stderr = new MarkedOutput(process.stderr, marks.stderr);
    this.#channel = new DriverChannel(process.channel, () => void process.kill());
    void process.exited.then((exit) => {
      this.#exit = exit;
      this.#onExit(exit);
      this.#channel.close();
      void this.#stdout.end();
      void this.#stderr.end();
    });
  }

  get hasEnded(): boolean {
    return this.#exit !== null;
  }

  /** Path of the work folder as seen by the code. */
  get workFolder(): string {
    return this.#process.workFolder;
  }

  /**
   * Runs a cell. After the time limit, the cell is interrupted; if it is still running KILL_AFTER_MS later, its interpreter is
   * killed. Never rejects.
   */
  async run(code: string, timeoutMs: number): Promise<CellResult> {
    const startedAt = performance.now();
    const outputs = [this.#stdout, this.#stderr] as const;
    for (const output of outputs) output.begin();
    this.#process.isWatched = true;
    let isTimeout = false;
    let killTimer: NodeJS.Timeout | undefined;
    const timer = setTimeout(() => {
      isTimeout = true;
      this.#process.interrupt();
      killTimer = setTimeout(() => void this.#process.kill(), KILL_AFTER_MS);
    }, timeoutMs);
    // Promise.race with `exited` would keep each reply in memory until the process ends.
    const outcome = await new Promise<Reply | { readonly why: string }>((resolve) => {
      this.#onExit = (exit) => resolve({ why: reasonOf(exit, isTimeout) });
      if (this.#exit !== null) this.#onExit(this.#exit);
      void this.#channel.ask(code).then(resolve);
    });
    this.#onExit = () => {};
    clearTimeout(timer);
    clearTimeout(killTimer);
    this.#process.isWatched = false;
    const hasEnded = "why" in outcome;
    await Promise.all(outputs.map((output) => (hasEnded ? output.end() : resolvesWithin(MARK_MS, output.marked))));
    const [stdout, stderr] = [this.#stdout.take(), this.#stderr.take()];
    const parsed = hasEnded ? null : driverReply.safeParse(outcome.reply);
    if (parsed?.success) {
      const { result_type: resultType, left_out: picturesLeftOut, ...rest } = parsed.data;
      return { ...rest, stdout, stderr, resultType, picturesLeftOut, isTimeout };
    }
    if (!hasEnded) await this.kill();
    const why =
      hasEnded && !this.#channel.isFlooded ? outcome.why : "its code has written to the channel of the server";
    const exception = `The Python interpreter was ended: ${why}. Its variables are lost; files are kept.`;
    return { ...nothing, stdout, stderr, exception, ms: performance.now() - startedAt, isTimeout };
  }

  async kill(): Promise<void> {
    await this.#process.kill();
  }
}

const nothing = { result: null, resultType: null, images: [], frames: [], picturesLeftOut: 0 } as const;

function reasonOf({ limit, code }: ConfinedExit, isTimeout: boolean): string {
  if (limit !== null) return `it exceeded the limit of ${limit}`;
  if (isTimeout) return "it ran too long and did not react to an interrupt";
  return code === null ? "it was killed" : `it ended with exit code ${code}`;
}
