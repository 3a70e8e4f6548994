// Owns the files of one model's prepared adapters: each in a folder of its own, which nobody else ever has, so that removing
// one cannot hurt another of the same content. Used by ModelAdapters, which says when one is not needed any more.
import { randomUUID } from "node:crypto";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import type { PrepareOptions } from "../../engines/files/lora/prepare.ts";
import type { PreparedAdapter } from "../../engines/files/lora/prepared-adapter.ts";
import type { Content } from "./adapter-version.ts";

/** Makes one ready in a folder, which it makes first. */
export type Prepare = (options: PrepareOptions, signal: AbortSignal) => Promise<PreparedAdapter>;

export interface AdapterFilesOptions {
  readonly folder: string;
  readonly modelPath: string;
  readonly limits: PrepareOptions["limits"];
  readonly prepare: Prepare;
  /** Told of a file that could not be removed. */
  readonly onError: (error: unknown) => void;
}

export class AdapterFiles {
  readonly #options: AdapterFilesOptions;
  readonly #closing = new AbortController();
  /** Never rejects. */
  #lastPreparation: Promise<unknown> = Promise.resolve();

  constructor(options: AdapterFilesOptions) {
    this.#options = options;
  }

  get isClosed(): boolean {
    return this.#closing.signal.aborted;
  }

  /** Leaves nothing where it fails. Throws as prepareAdapter does, and `cancelled`. */
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

  /** Never rejects: one that stays is gone when the server's folder is. */
  async remove({ home }: Pick<Content, "home">): Promise<void> {
    try {
      await rm(home, { recursive: true, force: true });
    } catch (error) {
      this.#options.onError(error);
    }
  }

  /** Ends what is being prepared, and removes those given. */
  async close(contents: readonly Content[]): Promise<void> {
    this.#closing.abort();
    await this.#lastPreparation;
    await Promise.all(contents.map((content) => this.remove(content)));
  }
}
