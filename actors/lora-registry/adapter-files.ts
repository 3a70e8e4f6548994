// AdapterFiles: the files of one model's prepared adapters. Each file has its own folder with a unique name, so that removing it
// does not affect another file with the same content. ModelAdapters decides when a file is no longer needed.
import { randomUUID } from "node:crypto";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import type { PrepareOptions } from "../../engines/files/lora/prepare.ts";
import type { PreparedAdapter } from "../../engines/files/lora/prepared-adapter.ts";
import type { Content } from "./adapter-version.ts";

/** Prepares an adapter: checks it and writes it as one GGUF file to the folder `options.folder`, which the function creates. */
export type Prepare = (options: PrepareOptions, signal: AbortSignal) => Promise<PreparedAdapter>;

export interface AdapterFilesOptions {
  readonly folder: string;
  readonly modelPath: string;
  readonly limits: PrepareOptions["limits"];
  readonly prepare: Prepare;
  /** Called when a file could not be removed. */
  readonly onError: (error: unknown) => void;
}

export class AdapterFiles {
  readonly #options: AdapterFilesOptions;
  readonly #closing = new AbortController();
  /** Promise of the latest preparation, for which the next one waits. Never rejects. */
  #lastPreparation: Promise<unknown> = Promise.resolve();

  constructor(options: AdapterFilesOptions) {
    this.#options = options;
  }

  get isClosed(): boolean {
    return this.#closing.signal.aborted;
  }

  /** Prepares an adapter. Leaves no file behind on failure. Throws the errors of prepareAdapter, and `cancelled`. */
  async prepare(source: string, root: string | null): Promise<Content> {
    const { folder, modelPath, limits, prepare } = this.#options;
    const home = join(folder, `adapter-${randomUUID()}`);
    const preparation = prepare({ source, root, modelPath, limits, folder: home }, this.#closing.signal);
    this.#lastPreparation = preparation.catch(() => {});
    try {
      return { prepared: await preparation, home };
    } catch (error) {
      await this.remove({ home });
      throw error;
    }
  }

  /** Removes an adapter's file. Never rejects: if the file cannot be removed, it is removed later, with the server's folder. */
  async remove({ home }: Pick<Content, "home">): Promise<void> {
    try {
      await rm(home, { recursive: true, force: true });
    } catch (error) {
      this.#options.onError(error);
    }
  }

  /** Cancels the preparation in progress and removes the given files. */
  async close(contents: readonly Content[]): Promise<void> {
    this.#closing.abort();
    await this.#lastPreparation;
    await Promise.all(contents.map((content) => this.remove(content)));
  }
}
