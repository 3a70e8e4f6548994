// Document text: extracts the beginning of the text of a PDF or office document. Each document is read in its own process,
// because a malicious file may exploit a bug in the parser. The process is killed if it exceeds its time or memory limit.
import { fileURLToPath } from "node:url";
import { resolvesWithin } from "../../../runtime/clock.ts";
import { runLimitedProgram } from "../../../runtime/program/limited-program.ts";
import { Gate } from "../../../runtime/queues/gate.ts";
import { documentKind } from "./document-kind.ts";

/** Time limits in ms: for reading one document, and for waiting and reading together. */
const READ_MS = 5000;
const TOTAL_MS = 10_000;
const limits = { cpuSeconds: 10, memoryBytes: 512 * 2 ** 20, heapMiB: 256, outputBytes: 2 ** 20 };
/** Maximum number of documents that are read concurrently. */
const PLACES = 2;

const program = fileURLToPath(new URL("./read-document.js", import.meta.url));
const gate = new Gate(PLACES);

export interface DocumentToRead {
  readonly path: string;
  readonly mimeType: string;
  /** Client for which the document is read. Waiting clients are served in turn. */
  readonly client: string;
  readonly maxCharacters: number;
}

/**
 * Returns the beginning of the text, at most `maxCharacters` characters. Returns null if the document type is not supported, the
 * document has no text, or it cannot be read within the time and memory limits.
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
