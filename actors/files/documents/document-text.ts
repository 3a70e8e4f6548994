// Document text: reads the beginning of the text of a PDF or office document. A separate process reads each document,
// because a malicious file may attack its parser. The process is ended if it exceeds its limits of time or memory.
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { resolvesWithin } from "../../../runtime/clock.ts";
import { limitedCommand } from "../../../runtime/host/limited-command.ts";
import { Gate } from "../../../runtime/queues/gate.ts";
import { memoryOf } from "../../../runtime/sandbox/usage.ts";
import { documentKind } from "./document-kind.ts";

/** Time limits in ms: of reading one document, and of waiting and reading together. */
const READ_MS = 5000;
const TOTAL_MS = 10_000;
/** Limit of a reading process's processor time, in seconds. The kernel enforces it, even if this server has been killed. */
const CPU_SECONDS = 10;
const MEMORY_BYTES = 512 * 2 ** 20;
const HEAP_MIB = 256;
const WATCH_MS = 50;
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

async function read(args: readonly string[], limitMs: number): Promise<string | null> {
  return await new Promise((resolve) => {
    const options = { env: {}, timeout: limitMs, killSignal: "SIGKILL", maxBuffer: 2 ** 20 } as const;
    const [file, ...rest] = limitedCommand(
      [process.execPath, `--max-old-space-size=${HEAP_MIB}`, program, ...args],
      CPU_SECONDS,
    );
    const child = execFile(file, rest, options, (error, text) => {
      clearInterval(watch);
      resolve(error === null && text !== "" ? text : null);
    });
    const watch = setInterval(() => {
      if (child.pid !== undefined && memoryOf([child.pid], MEMORY_BYTES) > MEMORY_BYTES) child.kill("SIGKILL");
    }, WATCH_MS);
  });
}
