// X-LoRA classifier: reads the linear layers in xlora_classifier.safetensors and checks them against the config. Layer
// numbers in the file have gaps, because modules without parameters are numbered too.
import { join } from "node:path";
import type { ClassifierLayer } from "../../../engine.ts";
import { quote } from "../../gguf/invalid-file.ts";
import type { SafetensorsEntry } from "../../safetensors/head.ts";
import { invalidAdapter } from "../adapter-problems.ts";
import { readFloats } from "../lora-pair.ts";
import { floatSpan, readSafetensors } from "../safetensors.ts";
import { SourceFile } from "../source-file.ts";
import type { MixtureConfig } from "./mixture-config.ts";

/** Weight and bias of one linear layer. */
interface Parts {
  weight?: SafetensorsEntry;
  bias?: SafetensorsEntry;
}

const fileName = "xlora_classifier.safetensors";

/** Reads the classifier of an X-LoRA folder. `classes` is the number of adapters. Throws `invalid_lora_adapter`. */
export async function readClassifier(
  folder: string,
  config: MixtureConfig,
  { classes, maxBytes }: { readonly classes: number; readonly maxBytes: number },
): Promise<ClassifierLayer[]> {
  const file = await SourceFile.open(join(folder, fileName), fileName, { root: null, maxBytes });
  try {
    const found = inOrder(await readSafetensors(file));
    if (found.length !== config.xlora_depth) {
      throw invalidAdapter(`its ${fileName} has ${found.length} layers; expected xlora_depth ${config.xlora_depth}`);
    }
    const layers: ClassifierLayer[] = [];
    for (const [i, [name, parts]] of found.entries()) {
      const columns = i === 0 ? config.hidden_size : config.xlora_size;
      const rows = i < found.length - 1 ? config.xlora_size : outputsOf(parts, config, classes);
      const { weight, bias } = checkParts(name, parts, { rows, columns, hasBias: config.use_bias });
      layers.push({
        rows,
        columns,
        weight: await readFloats(floatSpan(weight, file)),
        bias: bias && (await readFloats(floatSpan(bias, file))),
      });
    }
    await file.checkUnchanged();
    return layers;
  } finally {
    await file.close();
  }
}

/** Returns the layers in order with their names. The name of the last layer has no number. */
function inOrder(tensors: readonly SafetensorsEntry[]): [name: string, parts: Parts][] {
  const layers = new Map<string, Parts>();
  for (const tensor of tensors) {
    const [, name, part] = /^(last|inner\.(?:0|[1-9]\d{0,3}))\.(weight|bias)$/.exec(tensor.name) ?? [];
    if (name === undefined) {
      throw invalidAdapter(
        `its ${fileName} has the tensor ${quote(tensor.name)}; expected inner.<number> and last, each .weight and .bias`,
      );
    }
    const parts = layers.get(name) ?? {};
    parts[part as "weight" | "bias"] = tensor;
    layers.set(name, parts);
  }
  const place = (name: string) => (name === "last" ? Number.POSITIVE_INFINITY : Number(name.slice("inner.".length)));
  if (!layers.has("last")) throw invalidAdapter(`its ${fileName} has no tensor "last.weight"`);
  return [...layers].sort(([one], [other]) => place(one) - place(other));
}

/**
 * Checks and returns the number of outputs: one per adapter, or one per adapter and layer. The file determines the
 * number of layers.
 */
function outputsOf({ weight }: Parts, { layerwise_scalings: isLayerwise }: MixtureConfig, classes: number): number {
  const rows = weight?.shape[0] ?? 0;
  if (!isLayerwise) return classes;
  if (rows > 0 && rows % classes === 0) return rows;
  throw invalidAdapter(`its classifier has ${rows} outputs, which is not a multiple of its ${classes} adapters`);
}

interface ExpectedLayer {
  readonly rows: number;
  readonly columns: number;
  readonly hasBias: boolean;
}

function checkParts(
  name: string,
  { weight, bias }: Parts,
  { rows, columns, hasBias }: ExpectedLayer,
): { readonly weight: SafetensorsEntry; readonly bias: SafetensorsEntry | null } {
  if (!weight) throw invalidAdapter(`its ${fileName} has no tensor "${name}.weight"`);
  if ((bias !== undefined) !== hasBias) {
    throw invalidAdapter(`its ${fileName} has ${bias ? "a" : "no"} tensor "${name}.bias", but use_bias is ${hasBias}`);
  }
  checkShape(weight, [rows, columns]);
  if (bias) checkShape(bias, [rows]);
  return { weight, bias: bias ?? null };
}

function checkShape({ name, shape }: SafetensorsEntry, expected: readonly number[]): void {
  if (shape.length === expected.length && shape.every((length, i) => length === expected[i])) return;
  throw invalidAdapter(
    `its tensor ${quote(name)} is [${shape.join(", ")}]; expected [${expected.join(", ")}] to fit xlora_config.json, the ` +
      "model and the number of adapters",
  );
}
