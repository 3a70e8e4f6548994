// Messages between thread.ts (the model's side of a grammar thread) and worker.ts (the thread itself).
// Tokens and masks do not travel as messages: see sheet.ts.
import type { ErrorRecord } from "../../../../runtime/errors.ts";
import type { GrammarSource } from "../../../grammar-source.ts";

/** A source under the number by which grammar threads know it. */
export interface NumberedSource {
  readonly id: number;
  readonly source: GrammarSource;
}

/** What a grammar thread is started with. */
export interface WorkerSetup {
  readonly modelPath: string;
  /** Tokens of the model's logits; the vocabulary may have fewer. */
  readonly vocabSize: number;
  readonly endOfGeneration: readonly number[];
  readonly control: SharedArrayBuffer;
}

export type WorkerOrder =
  | { readonly type: "compile"; readonly grammar: number; readonly source: GrammarSource }
  /** A matcher that has seen the tokens of `history` and answers on `sheet` from now on. */
  | {
      readonly type: "open";
      readonly matcher: number;
      readonly grammar: number;
      readonly sheet: SharedArrayBuffer;
      readonly history: Int32Array;
    }
  | { readonly type: "close"; readonly matcher: number }
  | { readonly type: "forget"; readonly grammar: number };

export type WorkerReport =
  /** `thread`: the system's number of it, null where there is none. */
  | { readonly type: "ready"; readonly thread: number | null }
  /** `isFull`: the thread holds so much memory that it should be replaced when it can be. */
  | { readonly type: "compiled"; readonly grammar: number; readonly tookMs: number; readonly isFull: boolean }
  /** The thread ends: the grammar engine has failed on a grammar, or on something else where it is null. */
  | { readonly type: "failed"; readonly grammar: number | null; readonly reason: string }
  /** The thread ends before it has begun. */
  | { readonly type: "unusable"; readonly error: ErrorRecord };
