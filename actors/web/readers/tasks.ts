// Tasks of reader processes: their inputs, results and messages.
import type { ErrorRecord } from "../../../runtime/errors.ts";
import type { ResultPage } from "../extract/duckduckgo-page.ts";
import type { ExtractedText } from "../extract/page-text.ts";
import type { Passage } from "../ranking/scores.ts";

/** Inputs and results of the tasks, by kind. */
export interface ExtractTasks {
  page: { readonly input: { bytes: Uint8Array; contentType: string; url: string }; readonly result: ExtractedText };
  results: { readonly input: { bytes: Uint8Array; contentType: string }; readonly result: ResultPage };
  scores: {
    readonly input: { query: string; passages: readonly Passage[] };
    readonly result: readonly number[];
  };
  robots: { readonly input: { text: string; robotsUrl: string; url: string }; readonly result: boolean };
}

export interface ReaderTask {
  readonly kind: keyof ExtractTasks;
  readonly input: unknown;
}

export type ReaderAnswer = { readonly value: unknown } | { readonly error: ErrorRecord };
