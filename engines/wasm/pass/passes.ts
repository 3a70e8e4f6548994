// Pass runner: runs a pass on all compute threads of a model. The model fills the pass descriptor before the pass. A
// pass throws if a thread has ended, the model is being unloaded, or an earlier pass failed. The leader is thread 0 of
// the group.
import { ServerError } from "../../../runtime/errors.ts";
import type { Batch } from "../../batch.ts";
import type { ComputeThread } from "../threads/compute-thread.ts";
import type { HelperThread } from "../threads/helper-thread.ts";

export class Passes {
  readonly #leader: ComputeThread;
  readonly #helpers: readonly HelperThread[];
  readonly #abortFlag: Uint8Array | null;
  #disposed = false;
  /** Reason why no further pass can run; set when a thread ends or a pass fails. */
  #broken: ServerError | null = null;

  constructor(leader: ComputeThread, helpers: readonly HelperThread[], abortFlag: SharedArrayBuffer | null) {
    this.#leader = leader;
    this.#helpers = helpers;
    this.#abortFlag = abortFlag && new Uint8Array(abortFlag);
    for (const helper of helpers) void helper.ended.then((reason) => this.#helperEnded(reason));
  }

  /** Throws if no pass can run. */
  checkUsable(): void {
    if (this.#broken) throw this.#broken;
  }

  /** Runs the pass in the pass descriptor; the results are complete on return. */
  run(): void {
    this.#checkAborted();
    this.#leader.group.startPass();
    this.#leader.runPass(this.#checkAborted);
  }

  /**
   * Throws if the model is being unloaded. Also called before each layer, because the pass of a long text may take a
   * minute.
   */
  readonly #checkAborted = () => {
    if (this.#abortFlag?.[0] === 1) throw new ServerError("model_failed", "the forward pass was aborted");
  };

  /** Makes the current step and all later steps fail. Returns the error to throw. */
  fail(error: unknown): ServerError {
    this.#leader.group.fail();
    this.#broken ??= asModelFailure(error);
    return this.#broken;
  }

  /** Stops the compute threads. Returns false if dispose() was called before. */
  dispose(): boolean {
    if (this.#disposed) return false;
    this.#disposed = true;
    this.#leader.group.stop();
    for (const helper of this.#helpers) void helper.terminate();
    return true;
  }

  #helperEnded(reason: ServerError): void {
    if (!this.#disposed) this.#broken ??= reason;
  }
}

/**
 * Checks that all tokens are in the vocabulary, because the kernels would read unrelated memory for any other id. Exception: placeholder
 * tokens of images and audio are negative, and the kernels do not look them up.
 */
export function checkTokens(batch: Batch, vocabSize: number): void {
  let embedded = 0;
  for (const { length } of batch.embedded) embedded += length;
  for (let i = 0; i < batch.tokenCount; i++) {
    const token = batch.tokens[i] as number;
    if (token >= 0 && token < vocabSize) continue;
    if (token < 0 && embedded-- > 0) continue;
    throw new ServerError("model_failed", `token ${token} is outside the vocabulary of ${vocabSize}`);
  }
}

function asModelFailure(error: unknown): ServerError {
  if (error instanceof ServerError) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new ServerError("model_failed", `the wasm engine's forward pass failed: ${message}`, { cause: error });
}
