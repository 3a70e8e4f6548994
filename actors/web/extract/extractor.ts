// Extractor: runs extraction tasks on worker threads, and PDF files in processes of their own. Clients take turns.
import { randomUUID } from "node:crypto";
import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { ServerError } from "../../../runtime/errors.ts";
import { type EndReason, TaskEnded } from "../../../runtime/task/task.ts";
import { TaskPool } from "../../../runtime/task/task-pool.ts";
import { documentText } from "../../files/documents/document-text.ts";
import { extractWorkerModule } from "../../placement.ts";
import type { ExtractTasks } from "./extract-worker.ts";

const quickMs = 250;
const limitMs = 5000;
const loadLimitMs = 10_000;
const heapMiB = 256;
const quickWorkers = 1;
const slowWorkers = 2;
const maxQueued = 512;
const maxPdfCharacters = 131_072;

export interface TaskOwner {
  readonly client: string;
  readonly signal: AbortSignal;
}

export class Extractor {
  readonly #folder: string;
  readonly #pool = new TaskPool({
    name: "extract",
    module: extractWorkerModule,
    init: null,
    heapMiB,
    quickMs,
    limitMs,
    loadLimitMs,
    quickWorkers,
    slowWorkers,
    maxQueued,
    maxQueuedName: "web pages to read",
  });

  /** `folder`: folder for temporary files. */
  constructor(folder: string) {
    this.#folder = folder;
  }

  /** Runs a task. Throws unsupported if the input cannot be read within the limits. */
  async run<K extends keyof ExtractTasks>(
    kind: K,
    input: ExtractTasks[K]["input"],
    owner: TaskOwner,
  ): Promise<ExtractTasks[K]["result"]> {
    try {
      return (await this.#pool.run({ kind, input, ...owner })) as ExtractTasks[K]["result"];
    } catch (error) {
      throw error instanceof TaskEnded ? ended(error.reason) : error;
    }
  }

  /** Returns the text of a PDF file. Throws unsupported if it has no text, or cannot be read within the limits. */
  async pdf(bytes: Uint8Array, client: string): Promise<string> {
    const path = join(this.#folder, `${randomUUID()}.pdf`);
    await writeFile(path, bytes, { mode: 0o600 });
    try {
      const text = await documentText({ path, mimeType: "application/pdf", client, maxCharacters: maxPdfCharacters });
      if (text !== null) return text;
    } finally {
      await rm(path, { force: true });
    }
    throw new ServerError("unsupported", "the PDF file has no text, or cannot be read within 5 s and 512 MiB");
  }

  close(): void {
    this.#pool.close();
  }
}

function ended(reason: EndReason): ServerError {
  const limit = {
    time: `it takes more than ${limitMs / 1000} s of processor time`,
    memory: `it takes more than ${heapMiB} MiB of memory`,
    crash: "its thread ended",
  };
  return new ServerError("unsupported", `the page cannot be read: ${limit[reason]}`);
}
