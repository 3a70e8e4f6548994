// X-LoRA mixture rig: a small model of 11 layers, X-LoRA folders for it, and functions that read them.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { MixtureSpec } from "../../../../engines/engine.ts";
import { type MixtureOptions, prepareMixture } from "../../../../engines/files/lora/mixture/mixture.ts";
import { prepareAdapter } from "../../../../engines/files/lora/prepare.ts";
import { temporaryFolder } from "../../../fixtures/lora/lora-prepared.ts";
import { decodeSafetensors } from "../../../fixtures/lora/lora-safetensors.ts";
import { type WrittenXlora, writeXlora, type XloraOptions } from "../../../fixtures/lora/xlora.ts";
import { type Tensor, writeTinyModel } from "../../../fixtures/models/tiny-gguf.ts";

export const root = temporaryFolder();
const modelPath = join(root, "model.gguf");
const prepared = join(root, "prepared");
export const limits = { maxRank: 16, maxBytes: 2 ** 24 };
/** Width of the model, and number of columns of the classifier's first layer. */
export const width = 16;
await writeTinyModel(modelPath, { seed: 7, layers: 11, width, heads: 2, vocabularySize: 260 });

let written = 0;

/** Writes three adapters of rank 1 for two matrices of each layer. */
export function write(options: Partial<XloraOptions> = {}): Promise<WrittenXlora> {
  const small = { adapterOptions: () => ({ rank: 1, targets: ["q_proj", "down_proj"] }) };
  return writeXlora(join(root, `xlora-${written++}`), { modelPath, seed: 3, ...small, ...options });
}

export function prepare({ folder }: WrittenXlora, changes: Partial<MixtureOptions> = {}): Promise<MixtureSpec> {
  const usual = { source: folder, orderFile: null, modelPath, limits, folder: prepared, keptAfter: null };
  return prepareMixture({ ...usual, ...changes });
}

/** Changes the xlora_config.json of the folder. */
export function edit({ folder }: WrittenXlora, change: (config: Record<string, unknown>) => unknown): void {
  const path = join(folder, "xlora_config.json");
  writeFileSync(path, JSON.stringify(change(JSON.parse(readFileSync(path, "utf8")))));
}

/** Returns the tensors of the folder's classifier, by name. */
export function tensorsOf({ folder }: WrittenXlora): Map<string, Tensor> {
  const tensors = decodeSafetensors(readFileSync(join(folder, "xlora_classifier.safetensors")));
  return new Map(tensors.map((tensor) => [tensor.name, tensor]));
}

/** Prepares a single adapter. Returns the path of the prepared file. */
export async function preparedAlone({ folder }: WrittenXlora, name: string): Promise<string> {
  return (await prepareAdapter({ source: join(folder, name), root: null, modelPath, limits, folder: prepared })).path;
}
