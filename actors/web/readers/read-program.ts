// Program of a reader process: runs the extraction tasks that it receives as messages, one after another, and replies to each.
import { ServerError, toErrorRecord } from "../../../runtime/errors.ts";
import { decodeText } from "../extract/charset.ts";
import { duckDuckGoResults } from "../extract/duckduckgo-page.ts";
import { pageText } from "../extract/page-text.ts";
import { robotsAllow } from "../extract/robots.ts";
import { wordScores } from "../ranking/scores.ts";
import type { ExtractTasks, ReaderAnswer, ReaderTask } from "./tasks.ts";

type Handlers = {
  readonly [K in keyof ExtractTasks]: (input: ExtractTasks[K]["input"]) => ExtractTasks[K]["result"];
};

const handlers: Handlers = {
  page: ({ bytes, contentType, url }) => pageText(bytes, contentType, url),
  results: ({ bytes, contentType }) => duckDuckGoResults(decodeText(bytes, contentType)),
  scores: ({ query, passages }) => wordScores(query, passages),
  robots: ({ text, robotsUrl, url }) => robotsAllow(text, robotsUrl, url),
};

process.on("message", ({ kind, input }: ReaderTask) => process.send?.(run(kind, input)));
process.on("disconnect", () => process.exit());

/** Runs a task. Any error, even a stack overflow caused by deep nesting, means that the page cannot be read. */
function run(kind: keyof ExtractTasks, input: unknown): ReaderAnswer {
  try {
    return { value: (handlers[kind] as (input: unknown) => unknown)(input) };
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    return { error: toErrorRecord(new ServerError("unsupported", `the page cannot be read: ${reason}`)) };
  }
}
