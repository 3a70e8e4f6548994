// Messages between thread.ts (the model's side of a grammar thread) and worker.ts (the thread itself). Tokens and masks
// do not travel as messages: see matcher-buffer.ts.
import type { ErrorRecord } from "../../../../runtime/errors.ts";
import type { GrammarSource } from "../../../grammar-source.ts";

/** A source with the number by which grammar threads know it. */
export interface NumberedSource {
  readonly id: number;
  readonly source: GrammarSource;
}

/** Start data of a grammar thread. */
export interface WorkerSetup {
  readonly modelPath: string;
  /** Number of logits of the model; the vocabulary may have fewer tokens. */
  readonly vocabSize: number;
  readonly endOfGeneration: readonly number[];
  readonly control: SharedArrayBuffer;
}

export type WorkerOrder =
  | { readonly type: "compile"; readonly grammar: number; readonly source: GrammarSource }
  /** A matcher that has seen the tokens of `history` and answers in `buffer` from now on. */
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
  /** `thread`: the system's thread id; null if unknown. */
  | { readonly type: "ready"; readonly thread: number | null }
  /** `isFull`: the thread holds much memory and should be replaced when it is idle. */
  | { readonly type: "compiled"; readonly grammar: number; readonly tookMs: number; readonly isFull: boolean }
  /** The thread ends: the grammar engine has failed on a grammar (null: on other work). */
  | { readonly type: "failed"; readonly grammar: number | null; readonly reason: string }
  /** The thread ends before it has started. */
  | { readonly type: "unusable"; readonly error: ErrorRecord };
