// Document text: the beginning of the text of a PDF or office document. Each document is read by a process of its own, which is
// ended if it takes too long or too much memory: the parsers of such files meet files that were made to harm them.
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { resolvesWithin } from "../../../runtime/clock.ts";
import { limitedCommand } from "../../../runtime/host/limited-command.ts";
import { Gate } from "../../../runtime/queues/gate.ts";
import { memoryOf } from "../../../runtime/sandbox/usage.ts";
import { documentKind } from "./document-kind.ts";

/** Time limit of reading one document, and of waiting for a place and reading together. */
const READ_MS = 5000;
const TOTAL_MS = 10_000;
/** Limit of processor time. The kernel enforces it, also after this server was killed. */
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
  /** Waiting clients take turns. */
  readonly client: string;
  readonly maxCharacters: number;
}

/**
 * Returns the beginning of the text. null: the file is no document of a known type, or it has no text, or it
 * cannot be read within the limits of time and memory.
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
