// Messages between thread.ts (the model thread's handle of a grammar thread) and worker.ts (the grammar thread itself).
// Tokens and masks are not sent as messages: see matcher-buffer.ts.
import type { ErrorRecord } from "../../../../runtime/errors.ts";
import type { GrammarSource } from "../../../grammar-source.ts";

/** A grammar source with its id on grammar threads. */
export interface NumberedSource {
  readonly id: number;
  readonly source: GrammarSource;
}

/** Data that a grammar thread is started with. */
export interface WorkerSetup {
  readonly modelPath: string;
  /** Number of logits per position of the model; the vocabulary may have fewer tokens. */
  readonly vocabSize: number;
  readonly endOfGeneration: readonly number[];
  readonly control: SharedArrayBuffer;
}

export type WorkerOrder =
  | { readonly type: "compile"; readonly grammar: number; readonly source: GrammarSource }
  /** Opens a matcher that has processed the tokens of `history`. The matcher writes its token masks to `buffer`. */
  | {
      readonly type: "open";
      readonly matcher: number;
      readonly grammar: number;
      readonly buffer: SharedArrayBuffer;
      readonly history: Int32Array;
    }
  | { readonly type: "close"; readonly matcher: number }
  | { readonly type: "forget"; readonly grammar: number };

export type WorkerReport =
  /** The thread has started. `thread`: the operating system's thread id; null if unknown. */
  | { readonly type: "ready"; readonly thread: number | null }
  /** A grammar has been compiled. `isFull`: the thread uses much memory and should be replaced when it is idle. */
  | { readonly type: "compiled"; readonly grammar: number; readonly tookMs: number; readonly isFull: boolean }
  /**
   * The thread ends because the grammar engine has failed, either on a grammar or on other work (`grammar` is null).
   */
  | { readonly type: "failed"; readonly grammar: number | null; readonly reason: string }
  /** The thread ends because it could not start. */
  | { readonly type: "unusable"; readonly error: ErrorRecord };
