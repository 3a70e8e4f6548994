// Extraction worker: the task module of the threads that read what web servers send: pages, result pages, robots.txt, and words of
// passages. A task that takes too long or too much memory is ended with its thread.
import { ServerError } from "../../../runtime/errors.ts";
import type { TaskHandlers } from "../../../runtime/task/task.ts";
import { type Passage, wordScores } from "../ranking/scores.ts";
import { decodeText } from "./charset.ts";
import { duckDuckGoResults, type ResultPage } from "./duckduckgo-page.ts";
import { type ExtractedText, pageText } from "./page-text.ts";
import { robotsAllow } from "./robots.ts";

/** Inputs and results of the tasks, by kind. */
export interface ExtractTasks {
  page: { readonly input: { bytes: Uint8Array; contentType: string; url: string }; readonly result: ExtractedText };
  results: { readonly input: { bytes: Uint8Array; contentType: string }; readonly result: ResultPage };
  scores: { readonly input: { query: string; passages: readonly Passage[] }; readonly result: readonly number[] };
  robots: { readonly input: { text: string; robotsUrl: string; url: string }; readonly result: boolean };
}

type Handlers = {
  readonly [K in keyof ExtractTasks]: (input: ExtractTasks[K]["input"]) => ExtractTasks[K]["result"];
};

const handlers: Handlers = {
  page: ({ bytes, contentType, url }) => pageText(bytes, contentType, url),
  results: ({ bytes, contentType }) => duckDuckGoResults(decodeText(bytes, contentType)),
  scores: ({ query, passages }) => wordScores(query, passages),
  robots: ({ text, robotsUrl, url }) => robotsAllow(text, robotsUrl, url),
};

export async function start(): Promise<TaskHandlers> {
  return {
    share: () => null,
    unshare: () => {},
    run: (kind, input) => ({ value: run(handlers[kind as keyof Handlers] as (input: unknown) => unknown, input) }),
  };
}

/** Errors of the libraries are the fault of the page. A RangeError is one too: a page that is nested too deeply. */
function run(handler: (input: unknown) => unknown, input: unknown): unknown {
  try {
    return handler(input);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new ServerError("unsupported", `the page cannot be read: ${reason}`, { cause: error });
  }
}
