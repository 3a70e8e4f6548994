// Extractor: runs extraction tasks in reader processes, and reads each PDF file in a separate process. Clients take turns, and a
// single client never uses all reader processes.
import { randomUUID } from "node:crypto";
import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { orAborted } from "../../../runtime/abort.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { ClientGate } from "../../../runtime/queues/keyed-gates.ts";
import { documentText } from "../../files/documents/document-text.ts";
import { ReaderProcess } from "./reader-process.ts";
import type { ExtractTasks } from "./tasks.ts";

/** Maximum number of reader processes, in total and per client. */
const maxProcesses = 3;
const maxProcessesOfClient = 2;
/** Time in ms after which an idle process ends. */
const idleMs = 60_000;
const maxPdfCharacters = 131_072;

export interface TaskOwner {
  readonly client: string;
  readonly signal: AbortSignal;
}

export class Extractor {
  readonly #folder: string;
  readonly #gate = new ClientGate(maxProcesses, maxProcessesOfClient);
  readonly #processes = new Set<ReaderProcess>();
  /** Processes without a task, with the timers that will end them. */
  readonly #idle = new Map<ReaderProcess, NodeJS.Timeout>();

  /** `folder`: folder for temporary files. */
  constructor(folder: string) {
    this.#folder = folder;
  }

  /** Runs a task. Throws unsupported if the input cannot be read within the limits, or cancelled. */
  async run<K extends keyof ExtractTasks>(
    kind: K,
    input: ExtractTasks[K]["input"],
    { client, signal }: TaskOwner,
  ): Promise<ExtractTasks[K]["result"]> {
    const run = async (): Promise<unknown> => (signal.aborted ? null : await this.#runNow(kind, input));
    return (await orAborted(signal, this.#gate.pass(run, client))) as ExtractTasks[K]["result"];
  }

  /** Returns the text of a PDF file. Throws unsupported if the file has no text or cannot be read within the limits. */
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

  /** Ends all processes. */
  close(): void {
    for (const timer of this.#idle.values()) clearTimeout(timer);
    for (const reader of this.#processes) reader.end();
  }

  async #runNow<K extends keyof ExtractTasks>(kind: K, input: ExtractTasks[K]["input"]): Promise<unknown> {
    const reader = this.#takeProcess();
    try {
      return await reader.run({ kind, input });
    } finally {
      this.#putBack(reader);
    }
  }

  #takeProcess(): ReaderProcess {
    for (const [reader, timer] of this.#idle) {
      clearTimeout(timer);
      this.#idle.delete(reader);
      if (reader.isUsable) return reader;
      this.#drop(reader);
    }
    const reader = new ReaderProcess();
    this.#processes.add(reader);
    return reader;
  }

  #putBack(reader: ReaderProcess): void {
    if (!reader.isUsable) {
      this.#drop(reader);
      return;
    }
    const timer = setTimeout(() => {
      this.#idle.delete(reader);
      this.#drop(reader);
    }, idleMs).unref();
    this.#idle.set(reader, timer);
  }

  #drop(reader: ReaderProcess): void {
    this.#processes.delete(reader);
    reader.end();
  }
}
