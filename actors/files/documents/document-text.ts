// Document text: the beginning of the text of a PDF or office document. Each document is read by a process of its own, which is
// ended if it takes too long or too much memory: the parsers of such files meet files that were made to harm them.
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { Gate } from "../../../runtime/queues/gate.ts";
import { memoryOf } from "../../../runtime/sandbox/usage.ts";
import { documentKind } from "./document-kind.ts";

const LIMIT_MS = 5000;
const MEMORY_BYTES = 512 * 2 ** 20;
const HEAP_MIB = 256;
const WATCH_MS = 50;
/** Maximum number of documents that are read at once. */
const PLACES = 2;

const program = fileURLToPath(new URL("./read-document.js", import.meta.url));
const gate = new Gate(PLACES);

/**
 * Returns at most `limit` characters. null: the file is no document of a known type, or it has no text, or it cannot be read
 * within the limits of time and memory.
 */
export async function documentText(path: string, mimeType: string, limit: number): Promise<string | null> {
  const kind = documentKind(mimeType);
  if (kind === null) return null;
  return await gate.pass(() => read([kind, path, String(limit)]));
}

async function read(args: readonly string[]): Promise<string | null> {
  return await new Promise((resolve) => {
    const options = { env: {}, timeout: LIMIT_MS, killSignal: "SIGKILL", maxBuffer: 2 ** 20 } as const;
    const node = [`--max-old-space-size=${HEAP_MIB}`, program, ...args];
    const child = execFile(process.execPath, node, options, (error, text) => {
      clearInterval(watch);
      resolve(error === null && text !== "" ? text : null);
    });
    const watch = setInterval(() => {
      if (child.pid !== undefined && memoryOf([child.pid], MEMORY_BYTES) > MEMORY_BYTES) child.kill("SIGKILL");
    }, WATCH_MS);
  });
}
