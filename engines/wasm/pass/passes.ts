// Owns running passes on all compute threads of a model: what the leader's order says, unless a thread has ended, the model
// is being unloaded, or a pass before it failed. The model fills the order; the leader is thread 0 of the team.
import { ServerError } from "../../../runtime/errors.ts";
import type { Batch } from "../../batch.ts";
import type { ComputeThread } from "../threads/compute-thread.ts";
import type { HelperThread } from "../threads/helper-thread.ts";

export class Passes {
  readonly #leader: ComputeThread;
  readonly #helpers: readonly HelperThread[];
  readonly #abortFlag: Uint8Array | null;
  #disposed = false;
  /** Why no further pass can be run; set when a thread ends, or a pass fails. */
  #broken: ServerError | null = null;

  constructor(leader: ComputeThread, helpers: readonly HelperThread[], abortFlag: SharedArrayBuffer | null) {
    this.#leader = leader;
    this.#helpers = helpers;
    this.#abortFlag = abortFlag && new Uint8Array(abortFlag);
    for (const helper of helpers) void helper.ended.then((reason) => this.#helperEnded(reason));
  }

  /** Throws why no pass can be run. */
  checkUsable(): void {
    if (this.#broken) throw this.#broken;
  }

  /** Runs what the order says; once it returns what comes of it is there. */
  run(): void {
    this.#checkAborted();
    this.#leader.team.giveOrder();
    this.#leader.runPass(this.#checkAborted);
  }

  /** Before each layer too: a long text's pass may take a minute. */
  readonly #checkAborted = () => {
    if (this.#abortFlag?.[0] === 1) throw new ServerError("model_failed", "the forward pass was aborted");
  };

  /** Ends the passes of a step that cannot go on, and all later ones. Returns what to throw. */
  fail(error: unknown): ServerError {
    this.#leader.team.fail();
    this.#broken ??= asModelFailure(error);
    return this.#broken;
  }

  /** False where it had been called before. */
  dispose(): boolean {
    if (this.#disposed) return false;
    this.#disposed = true;
    this.#leader.team.stop();
    for (const helper of this.#helpers) void helper.terminate();
    return true;
  }

  #helperEnded(reason: ServerError): void {
    if (!this.#disposed) this.#broken ??= reason;
  }
}

/** A token outside the vocabulary would read somebody else's memory. */
export function checkTokens(batch: Batch, vocabSize: number): void {
  for (let i = 0; i < batch.tokenCount; i++) {
    const token = batch.tokens[i] as number;
    if (token >= 0 && token < vocabSize) continue;
    throw new ServerError("model_failed", `token ${token} is outside the vocabulary of ${vocabSize}`);
  }
}

function asModelFailure(error: unknown): ServerError {
  if (error instanceof ServerError) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new ServerError("model_failed", `the wasm engine's forward pass failed: ${message}`, { cause: error });
}
