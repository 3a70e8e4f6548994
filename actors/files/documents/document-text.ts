// Document text: reads the beginning of the text of a PDF or office document. A separate process reads each document,
// because a malicious file may attack its parser. The process is ended if it exceeds its limits of time or memory.
import { fileURLToPath } from "node:url";
import { resolvesWithin } from "../../../runtime/clock.ts";
import { runLimitedProgram } from "../../../runtime/program/limited-program.ts";
import { Gate } from "../../../runtime/queues/gate.ts";
import { documentKind } from "./document-kind.ts";

/** Time limits in ms: of reading one document, and of waiting and reading together. */
const READ_MS = 5000;
const TOTAL_MS = 10_000;
const limits = { cpuSeconds: 10, memoryBytes: 512 * 2 ** 20, heapMiB: 256, outputBytes: 2 ** 20 };
/** Maximum number of documents that are read at once. */
const PLACES = 2;

const program = fileURLToPath(new URL("./read-document.js", import.meta.url));
const gate = new Gate(PLACES);

export interface DocumentToRead {
  readonly path: string;
  readonly mimeType: string;
  /** Client for which the document is read. Waiting clients take turns. */
  readonly client: string;
  readonly maxCharacters: number;
}

/**
 * Returns the beginning of the text, at most `maxCharacters` characters. Returns null if the type of the document is not
 * supported, if it has no text, or if it cannot be read within the limits of time and memory.
 */
export async function documentText({ path, mimeType, client, maxCharacters }: DocumentToRead): Promise<string | null> {
  const kind = documentKind(mimeType);
  if (kind === null) return null;
  const endsAt = performance.now() + TOTAL_MS;
  let text: string | null = null;
  const reading = gate.pass(async () => {
    const leftMs = Math.floor(endsAt - performance.now());
    if (leftMs > 0) text = await read([kind, path, String(maxCharacters)], Math.min(READ_MS, leftMs));
  }, client);
  await resolvesWithin(TOTAL_MS, reading);
  return text;
}

async function read(args: readonly string[], timeMs: number): Promise<string | null> {
  const { output, failure } = await runLimitedProgram(program, { args, limits: { ...limits, timeMs } });
  return failure === null && output.length > 0 ? output.toString("utf8") : null;
}
