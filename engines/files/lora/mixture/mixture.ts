// X-LoRA preparation: converts a folder to a MixtureSpec and checks it against the model. The folder has
// xlora_config.json, xlora_classifier.safetensors and one subfolder per adapter. Preparation takes long, so it must not
// run on a thread that serves requests.
import { existsSync } from "node:fs";
import { join } from "node:path";
import { ServerError } from "../../../../runtime/errors.ts";
import type { AdapterLimits, MixtureSpec } from "../../../engine.ts";
import { quote } from "../../gguf/invalid-file.ts";
import { readTensorTable, type TensorTable } from "../../gguf/tensors.ts";
import { invalidAdapter, reading } from "../adapter-problems.ts";
import { prepareAdapter } from "../prepare.ts";
import type { PreparedAdapter } from "../prepared-adapter.ts";
import { readClassifier } from "./mixture-classifier.ts";
import { type MixtureConfig, readMixtureConfig } from "./mixture-config.ts";
import { type LayerFacts, layersAsFound, layersAsSaid, readOrderFile } from "./mixture-order.ts";

export interface MixtureOptions {
  /** Path of the X-LoRA folder. */
  readonly source: string;
  /**
   * Path of a JSON file with two keys: `order`, the names of the adapters; `layers`, the layer of each module in the
   * classifier's outputs. null = none.
   */
  readonly orderFile: string | null;
  /** Path of the model's GGUF file, from which names, shapes and architecture are read. */
  readonly modelPath: string;
  readonly limits: Pick<AdapterLimits, "maxRank" | "maxBytes">;
  /** Folder to which prepared adapters are written. */
  readonly folder: string;
  /** Number of decoded tokens after which a sequence keeps its adapter weights; null = never (MixtureSpec.keptAfter). */
  readonly keptAfter: number | null;
}

/**
 * Prepares an X-LoRA. Throws `config_invalid` for errors in the order file, otherwise the error codes of an adapter.
 */
export async function prepareMixture(options: MixtureOptions): Promise<MixtureSpec> {
  const { source, orderFile, modelPath, limits, keptAfter } = options;
  const model = await readTensorTable(modelPath);
  const order = orderFile === null ? {} : await readOrderFile(orderFile);
  const { config, names, classifier } = await reading(source, async () => {
    const found = await readMixtureConfig(source);
    const used = order.order ?? found.adapters;
    checkNames(used);
    checkConfig(found, used.length, model);
    const sizes = { classes: used.length, maxBytes: limits.maxBytes };
    return { config: found, names: used, classifier: await readClassifier(source, found, sizes) };
  });
  const adapters = await prepareAll(names, options);
  const outputs = classifier.at(-1)?.rows ?? 0;
  const layerCount = config.layerwise_scalings ? outputs / names.length : null;
  return {
    adapters: adapters.map(({ path }) => path),
    classifier,
    rectifies: config.enable_relu_and_dropout,
    layerwise: config.layerwise_scalings,
    layers: await layersOf({
      options,
      layerCount,
      said: order.layers,
      matrices: await changedMatrices(adapters),
      model,
    }),
    temperature: config.enable_softmax ? config.softmax_temperature : null,
    topAdapters: config.top_k_lora,
    normalisesTop: config.enable_softmax_topk,
    globalWeight: config.global_scaling_weight,
    firstPassWeight: config.scaling_pass_value,
    keptAfter,
  };
}

interface LayerQuestion extends Omit<LayerFacts, "layerCount"> {
  readonly options: MixtureOptions;
  /** Number of layers for which the classifier gives separate weights; null = all layers have the same weights. */
  readonly layerCount: number | null;
  /** Classifier layer of each module, from the order file. */
  readonly said: Readonly<Record<string, number>> | undefined;
}

async function layersOf({ options, layerCount, said, ...facts }: LayerQuestion): Promise<Record<string, number>> {
  const { source, orderFile } = options;
  if (layerCount === null) return Object.fromEntries([...facts.matrices].map((name) => [name, 0]));
  if (orderFile !== null && said) return layersAsSaid(orderFile, said, { ...facts, layerCount });
  return reading(source, async () => layersAsFound(facts.matrices, layerCount));
}

function checkConfig(config: MixtureConfig, classes: number, { fields }: TensorTable): void {
  const width = fields.get(`${fields.get("general.architecture")}.embedding_length`);
  if (config.hidden_size !== width) {
    throw invalidAdapter(`it is made for hidden_size ${config.hidden_size}; the model has ${width}`);
  }
  if (config.top_k_lora !== null && config.top_k_lora > classes) {
    throw invalidAdapter(`its top_k_lora is ${config.top_k_lora}, but it has ${classes} adapters`);
  }
}

/**
 * Checks that the adapter names, which may be untrusted, are paths inside the X-LoRA's folder and differ from each
 * other.
 */
function checkNames(names: readonly string[]): void {
  for (const [i, name] of names.entries()) {
    if (names.indexOf(name) !== i) throw invalidAdapter(`its adapter ${quote(name)} is named twice`);
    const isPlain = !/[\\\0]/.test(name) && name.split("/").every((part) => !["", ".", ".."].includes(part));
    if (!isPlain) throw invalidAdapter(`its adapter ${quote(name)} is not the name of a folder in it`);
  }
}

async function prepareAll(names: readonly string[], options: MixtureOptions): Promise<PreparedAdapter[]> {
  const { source, modelPath, limits, folder } = options;
  const adapters: PreparedAdapter[] = [];
  let bytes = 0;
  for (const name of names) {
    const own = folderOf(name, source);
    adapters.push(await prepareAdapter({ source: own, root: null, modelPath, limits, folder }));
    bytes += adapters.at(-1)?.bytes ?? 0;
  }
  if (bytes <= limits.maxBytes) return adapters;
  throw new ServerError(
    "lora_byte_limit_exceeded",
    `the adapters of ${quote(source)} take ${bytes} bytes; at most ${limits.maxBytes} are allowed`,
  );
}

/**
 * Returns the folder of an adapter. The training library stores an adapter named `default` in the same folder as the
 * classifier.
 */
function folderOf(name: string, source: string): string {
  const own = join(source, name);
  return name === "default" && !existsSync(own) ? source : own;
}

/** Returns the names of all matrices that at least one adapter changes. */
async function changedMatrices(adapters: readonly PreparedAdapter[]): Promise<Set<string>> {
  const matrices = new Set<string>();
  for (const { path } of adapters) {
    for (const name of (await readTensorTable(path)).tensors.keys()) matrices.add(name.replace(/\.lora_[ab]$/, ""));
  }
  return matrices;
}
