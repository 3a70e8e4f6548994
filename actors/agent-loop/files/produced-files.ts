// Produced files: the files that the calls of one run create, and placeholders for requested files that no call
// created.
import { readFile } from "node:fs/promises";
import { toErrorRecord } from "../../../runtime/errors.ts";
import type { InlineContent, RequestedFile } from "../../api/agent/agents.ts";
import { type Files, type FileToStore, fileLimits, type StoredFile } from "../../api/agent/files.ts";

interface FailedFile {
  readonly name: string;
  readonly code: string;
  readonly message: string;
}

export interface StoredFiles {
  readonly stored: readonly StoredFile[];
  readonly failed: readonly FailedFile[];
}

export class ProducedFiles {
  readonly #files: Files;
  readonly #run: string;
  /** Ids of the session's files. */
  readonly #ids: string[];
  /** Names of the files that the run has produced, or for which it has stored a placeholder. */
  readonly #names = new Set<string>();
  #count = 0;
  /** Number of content bytes that further events of the run may contain. */
  #bytesLeft: number = fileLimits.maxInlineRunBytes;

  /** `ids`: ids of the session's files; ids of new files are appended. */
  constructor(files: Files, run: string, ids: string[]) {
    this.#files = files;
    this.#run = run;
    this.#ids = ids;
  }

  /** Stores the files of a call and emits an event for each. If a file cannot be stored, the model gets an error. */
  async store(
    files: readonly FileToStore[],
    round: number,
    announce: (file: StoredFile, inline: InlineContent | null) => void,
  ): Promise<StoredFiles> {
    const stored: StoredFile[] = [];
    const failed: FailedFile[] = [];
    for (const file of files) {
      try {
        const added = await this.#add(file, round);
        stored.push(added);
        announce(added, await this.#inline(added));
      } catch (error) {
        const { code, message } = toErrorRecord(error);
        failed.push({ name: file.name, code, message });
      }
    }
    return { stored, failed };
  }

  /** Stores a placeholder for each requested file that the run has not produced. `round`: number of the last round. */
  async storeMissing(
    requested: readonly RequestedFile[],
    round: number,
    common: Pick<FileToStore, "session" | "client"> & { readonly turn: number },
  ): Promise<readonly StoredFile[]> {
    const { turn, ...owner } = common;
    const missing = requested.filter(({ name }) => !this.#names.has(name));
    return await Promise.all(
      missing.map(({ name, format }) => {
        const failure = { code: "not_produced", message: `no tool created the file ${JSON.stringify(name)}` };
        const source = { tool: "request", round, turn };
        const file = {
          id: null,
          name,
          format,
          purpose: "agent_output",
          source,
          staged: null,
          failure,
          ...owner,
        } as const;
        return this.#add(file, round);
      }),
    );
  }

  async #add(file: FileToStore, round: number): Promise<StoredFile> {
    const added = await this.#files.add({ ...file, id: `file_${this.#run}_r${round}_${this.#count++}` });
    this.#ids.push(added.id);
    this.#names.add(added.name);
    return added;
  }

  async #inline(file: StoredFile): Promise<InlineContent | null> {
    if (file.failure !== null || file.bytes > Math.min(fileLimits.maxInlineBytes, this.#bytesLeft)) return null;
    this.#bytesLeft -= file.bytes;
    const content = await this.#files.content(file.id);
    if (content?.kind !== "content") return null;
    const bytes = await readFile(content.path).catch(() => null);
    if (bytes === null) return null;
    return file.isText ? { text: bytes.toString("utf8") } : { data_base64: bytes.toString("base64") };
  }
}

/** Returns the result of a call as JSON text, with the metadata and the first bytes of text of each created file added. */
export function withFiles(result: unknown, { stored, failed }: StoredFiles): string {
  const listed = stored.map(({ id, name, bytes, format, preview, isText, failure }) => ({
    id,
    name,
    ...(failure === null ? { bytes, format, ...(isText ? { preview: firstBytes(preview ?? "") } : {}) } : failure),
  }));
  const fields = typeof result === "object" && result !== null ? result : { content: result };
  return JSON.stringify({ ...fields, files: [...listed, ...failed] });
}

/** Returns the beginning of a text: at most outputPreviewBytes bytes of UTF-8, cut at a character boundary. */
function firstBytes(text: string): string {
  const bytes = Buffer.from(text, "utf8");
  if (bytes.length <= fileLimits.outputPreviewBytes) return text;
  return new TextDecoder().decode(bytes.subarray(0, fileLimits.outputPreviewBytes), { stream: true });
}
