// Random LoRA adapters for `bench adapters`, generated from fixed seeds and written to a temporary folder on first use.
// Their weights are small, so the model still writes readable text.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type LoraOptions, writeGgufAdapter, writePeftAdapter } from "../../test/fixtures/lora/lora.ts";

export type Targets = "attention" | "all-linear";

export const adapterRank = 16;
const magnitude = 0.1;

export interface AdapterFile {
  readonly alias: string;
  /** Folder with the adapter in PEFT's format. */
  readonly folder: string;
}

export class AdapterFiles {
  readonly #folder = mkdtempSync(join(tmpdir(), "troupe-bench-adapters-"));
  readonly #model: string;
  readonly #made = new Map<string, Promise<AdapterFile>>();

  constructor(model: string) {
    this.#model = model;
    process.once("exit", () => this.remove());
  }

  /** Returns the first `count` adapters for the matrices that `targets` selects. Writes their files if necessary. */
  async take(count: number, targets: Targets): Promise<AdapterFile[]> {
    const files: AdapterFile[] = [];
    for (let index = 0; index < count; index++) files.push(await this.#one(index, targets));
    return files;
  }

  /** Returns the path of a GGUF file for llama-server with the same weights as the first adapter for the matrices of `targets`. */
  async gguf(targets: Targets): Promise<string> {
    const path = join(this.#folder, `${targets}.gguf`);
    await writeGgufAdapter(path, this.#options(0, targets));
    return path;
  }

  remove(): void {
    rmSync(this.#folder, { recursive: true, force: true });
  }

  #one(index: number, targets: Targets): Promise<AdapterFile> {
    const alias = `${targets}-${index}`;
    let file = this.#made.get(alias);
    if (!file) {
      const folder = join(this.#folder, alias);
      file = writePeftAdapter(folder, this.#options(index, targets)).then(() => ({ alias, folder }));
      this.#made.set(alias, file);
    }
    return file;
  }

  #options(index: number, targets: Targets): LoraOptions {
    return { modelPath: this.#model, seed: index + 1, rank: adapterRank, targets, magnitude, dtype: "F16" };
  }
}

/** Returns the flags of a server that loads the adapters at its start. */
export function loraFlags(files: readonly AdapterFile[]): string[] {
  return files.flatMap(({ alias, folder }) => ["--lora", `${alias}=${folder}`]);
}
