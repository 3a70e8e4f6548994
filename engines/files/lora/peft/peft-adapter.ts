// PEFT adapter: reads adapter_config.json and adapter_model.safetensors and checks them against the model. Adapters
// with features that cannot be reproduced exactly are rejected; the error names the feature. Only the headers are read
// here; the values are read when the prepared adapter is written.
import { quote } from "../../gguf/invalid-file.ts";
import type { TensorTable } from "../../gguf/tensors.ts";
import type { SafetensorsEntry } from "../../safetensors/head.ts";
import { invalidAdapter } from "../adapter-problems.ts";
import { type LoraPair, matrixShape } from "../lora-pair.ts";
import { matrixOf } from "../module-names.ts";
import { floatSpan, readSafetensors } from "../safetensors.ts";
import type { SourceFile } from "../source-file.ts";
import { type PeftConfig, parsePeftConfig } from "./peft-config.ts";

interface Halves {
  A?: SafetensorsEntry;
  B?: SafetensorsEntry;
}

const loraName = /^base_model\.model\.(.+)\.lora_([AB])(?:\.default)?\.weight$/;

/** Unsupported tensors: a part of the tensor name, and the feature that it belongs to. */
const refusedParts: readonly (readonly [part: string, meaning: string])[] = [
  ["lora_magnitude_vector", "a magnitude of DoRA"],
  ["lora_embedding_", "a change of token embeddings"],
  ["lora_B.bias", "a bias"],
  ["modules_to_save", "a whole module"],
];

/** Reads the header of a PEFT adapter. Throws `invalid_lora_adapter` if it is unsupported or does not fit the model. */
export async function readPeftAdapter(
  { config, weights }: { readonly config: SourceFile; readonly weights: SourceFile },
  model: TensorTable,
): Promise<LoraPair[]> {
  const text = Buffer.alloc(config.size);
  await config.read(text, 0);
  const settings = parsePeftConfig(text);
  const modules = pairUp(await readSafetensors(weights));
  return [...modules].map(([module, halves]) => pairOf(module, halves, { settings, weights, model }));
}

function pairUp(tensors: readonly SafetensorsEntry[]): Map<string, Halves> {
  const modules = new Map<string, Halves>();
  for (const tensor of tensors) {
    const [, module, half] = loraName.exec(tensor.name) ?? [];
    if (module === undefined) throw strange(tensor.name);
    const halves = modules.get(module) ?? {};
    if (halves[half as "A" | "B"]) throw invalidAdapter(`it has lora_${half} of ${quote(module)} twice`);
    halves[half as "A" | "B"] = tensor;
    modules.set(module, halves);
  }
  return modules;
}

function strange(name: string) {
  const [, meaning] = refusedParts.find(([part]) => name.includes(part)) ?? [];
  if (meaning) return invalidAdapter(`its tensor ${quote(name)} is ${meaning}, which is not supported`);
  return invalidAdapter(
    `its tensor ${quote(name)} is not a LoRA tensor; expected names like base_model.model.<module>.lora_A.weight`,
  );
}

interface Surroundings {
  readonly settings: PeftConfig;
  readonly weights: SourceFile;
  readonly model: TensorTable;
}

function pairOf(module: string, { A, B }: Halves, { settings, weights, model }: Surroundings): LoraPair {
  if (!A || !B)
    throw invalidAdapter(`it has lora_${A ? "A" : "B"} of ${quote(module)}, but lora_${A ? "B" : "A"} is missing`);
  const matrix = matrixOf(module, model);
  const shape = matrixShape(model, matrix.name);
  if (!shape)
    throw invalidAdapter(
      `${matrix.name} of the model is not a plain matrix, so its module ${quote(module)} cannot be applied`,
    );
  const rank = settings.rankOf(module);
  checkShape(A, [rank, shape.columns], matrix.name);
  checkShape(B, [shape.rows, rank], matrix.name);
  if (matrix.turnedHeads > 0 && shape.rows % (2 * matrix.turnedHeads) !== 0) {
    throw invalidAdapter(
      `${matrix.name} of the model has ${shape.rows} rows, which do not divide into ${matrix.turnedHeads} heads`,
    );
  }
  return {
    ...matrix,
    ...shape,
    rank,
    scale: settings.scaleOf(module),
    a: floatSpan(A, weights),
    b: floatSpan(B, weights),
  };
}

function checkShape({ name, shape }: SafetensorsEntry, expected: readonly [number, number], matrix: string): void {
  if (shape.length === 2 && shape[0] === expected[0] && shape[1] === expected[1]) return;
  throw invalidAdapter(
    `its tensor ${quote(name)} is [${shape.join(", ")}]; expected [${expected.join(", ")}] to fit ${matrix} of the model ` +
      "and the rank in adapter_config.json",
  );
}
