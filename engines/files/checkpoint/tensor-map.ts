// Tensor map: maps the tensors of a checkpoint to those of a GGUF file, by the table of an architecture. Experts are stacked. A tensor that
// the table does not name is an error, as is a layer without tensors.
import { ServerError } from "../../../runtime/errors.ts";
import { quote } from "../gguf/invalid-file.ts";
import { isQuantizable } from "../gguf/tensors.ts";
import type { CheckpointArchitecture, Shaped, TensorTarget } from "./architectures/architecture.ts";
import type { Config } from "./config.ts";
import { joined } from "./row-changes.ts";
import type { RowSource } from "./row-source.ts";

/** Tensor of a GGUF file, and where its values come from. */
export interface TensorRecipe {
  /** Name of the tensor in the GGUF file. */
  readonly name: string;
  /** Dimensions, columns first. `rows.columns` is the first one. */
  readonly shape: readonly number[];
  /** GGUF type that has the precision of the files: 0 F32, 1 F16, 30 BF16, 39 MXFP4. */
  readonly storedType: number;
  /** Whether the tensor may be stored in a smaller type; vectors, norms and routers are F32. */
  readonly isMatrix: boolean;
  readonly rows: RowSource;
  /** Tensors of the checkpoint from which this tensor is made: one, or one per expert of a stack. */
  readonly from: readonly SourceTensor[];
}

/** Tensor of the checkpoint, after its quantisation has been resolved. */
export interface SourceTensor extends Shaped {
  readonly name: string;
  readonly storedType: number;
}

/** Names of tensors that are left out: those of image and audio components, and buffers that the engines compute again. */
const leftOut = [
  /^(?:mlp|vit|vpm|siglip2|conformer|merger|resampler|sound_encoder|sound_projection|speech_embeddings)/,
  /visual\.|vision[._]|audio[._]|talker\.|token2wav\.|code2wav\.|projector\.|pre_mm_projector_norm|image_newline/,
  /patch_embed|patch_merger\.|(?:^|\.)model\.connector\.|^model\.embed_(?:vision|audio)\./,
  // Layers for multi-token prediction.
  /^(?:model\.)?mtp\./,
  /(?:rotary_emb\.inv_freq|attention\.masked_bias|attention\.bias|position_ids)$/,
];

const maxDimensions = 4;

interface Group {
  readonly target: TensorTarget;
  readonly name: string;
  readonly layer: number | null;
  readonly order: number;
  readonly members: { readonly expert: number | null; readonly tensor: SourceTensor }[];
}

/** Returns the tensors of the GGUF file. Throws `model_file_invalid` naming the tensor. */
export function mapTensors(
  architecture: CheckpointArchitecture,
  config: Config,
  tensors: Iterable<SourceTensor>,
): TensorRecipe[] {
  const text = [...tensors].filter(({ name }) => !isLeftOut(name));
  const groups = groupTensors(architecture, config, text);
  checkLayers(config, groups);
  if (!groups.has("token_embd.weight")) throw missing(config, "there is no token embedding");
  // A tied model uses the embedding as output matrix, even if the files contain a copy.
  if (config.value("tie_word_embeddings") === true) groups.delete("output.weight");
  const added = architecture.addTensors?.(config) ?? [];
  const made = added.map(({ name, rows, shape }) => ({ name, rows, shape, storedType: 0, isMatrix: false, from: [] }));
  return [...made, ...recipesOf(groups, config)];
}

/** Like mapTensors(), for a component without a vocabulary. `tensors`: tensors of the component. */
export function mapPart(rules: PartRules, config: Config, tensors: Iterable<SourceTensor>): TensorRecipe[] {
  const groups = groupTensors(rules, config, tensors);
  if (rules.hasNoLayers) checkComplete(rules, config, groups);
  else checkLayers(config, groups);
  return recipesOf(groups, config);
}

/** Fields of an architecture that determine the names of tensors. */
type TensorRules = Pick<CheckpointArchitecture, "name" | "tensors" | "prefixes" | "leavesOutExtraLayers">;

export interface PartRules extends TensorRules {
  /** Whether the component is a projection without layers. */
  readonly hasNoLayers?: boolean;
}

function recipesOf(groups: ReadonlyMap<string, Group>, config: Config): TensorRecipe[] {
  const ordered = [...groups.values()].sort((one, other) => {
    return (one.layer ?? -1) - (other.layer ?? -1) || one.order - other.order;
  });
  return ordered.map((group) => recipeOf(group, config));
}

function groupTensors(architecture: TensorRules, config: Config, tensors: Iterable<SourceTensor>): Map<string, Group> {
  const table = new Map(
    Object.entries(architecture.tensors).map(([name, targets], order) => [name, { targets, order }]),
  );
  const groups = new Map<string, Group>();
  for (const tensor of tensors) {
    const place = placeOf(tensor.name, architecture.prefixes ?? [], (key) => table.has(key));
    const entry = place && table.get(place.key);
    if (!place || !entry) throw unknownTensor(architecture, config, tensor.name);
    if (entry.targets === null) continue;
    if (place.layer !== null && place.layer >= config.layers) {
      if (architecture.leavesOutExtraLayers) continue;
      throw config.invalid("num_hidden_layers", config.layers, `more layers: there is a tensor ${quote(tensor.name)}`);
    }
    for (const [i, target] of targetsOf(entry.targets).entries()) {
      if (target.only !== undefined && target.only !== place.suffix) continue;
      const name = target.to.replace("{l}", String(place.layer)) + (target.suffix ?? place.suffix);
      const group = groups.get(name) ?? { target, name, layer: place.layer, order: entry.order + i / 100, members: [] };
      if (group.members.some(({ expert }) => expert === place.expert)) throw doubled(config, name, tensor.name);
      group.members.push({ expert: place.expert, tensor });
      groups.set(name, group);
    }
  }
  return groups;
}

/** Whether a tensor belongs to a component of the model that the engines do not compute. */
export function isLeftOut(name: string): boolean {
  return leftOut.some((pattern) => pattern.test(name));
}

interface Place {
  /** Key of the tensor in the architecture's table of tensors. */
  readonly key: string;
  readonly suffix: string;
  readonly layer: number | null;
  readonly expert: number | null;
}

/** Returns a tensor's key in its architecture's table, and the suffix, layer and expert, which the key omits; null if unknown. */
export function placeOf(name: string, prefixes: readonly string[], isKnown: (key: string) => boolean): Place | null {
  let rest = name.replace("language_model.", "").replace("text_model.", "");
  for (const prefix of [...prefixes, "model."]) if (rest.startsWith(prefix)) rest = rest.slice(prefix.length);
  // A key of the table may itself contain numbers, such as those of a module's parts. They are neither layers nor experts.
  const { stem: whole, ending: last } = splitName(rest);
  if (last !== "" && isKnown(whole)) return { key: whole, suffix: last, layer: null, expert: null };
  const numbers: number[] = [];
  // A number after `layers` or a similar name is the layer; any other number is the expert or the index in a stack.
  const general = rest.replace(/(?<=\.)\d{1,9}(?=\.|$)/g, (digits, at: number) => {
    const isLayer = /(?:^|\.)(?:layers?|blocks|h|transformer_encoder)\.$/.test(rest.slice(0, at));
    numbers[isLayer ? 0 : 1] = Number(digits);
    return isLayer ? "{l}" : "{e}";
  });
  const [layer = null, expert = null] = numbers;
  const { stem, ending } = splitName(general);
  const place = { layer, expert };
  if (isKnown(general)) return { ...place, key: general, suffix: ending || ".weight" };
  return isKnown(stem) && ending !== "" ? { ...place, key: stem, suffix: ending } : null;
}

function splitName(name: string): { stem: string; ending: string } {
  const [ending = ""] = /\.(?:weight|bias)$/.exec(name) ?? [];
  return { stem: name.slice(0, name.length - ending.length), ending };
}

function targetsOf(targets: Exclude<CheckpointArchitecture["tensors"][string], null>): readonly TensorTarget[] {
  if (typeof targets === "string") return [{ to: targets }];
  return "to" in targets ? [targets] : targets;
}

function recipeOf({ target, name, members }: Group, config: Config): TensorRecipe {
  const stacked = stack(name, members, config);
  const { rows, shape } = changed(name, target, stacked, config);
  if (shape.length > maxDimensions || shape.includes(0)) throw misshapen(config, name, shape);
  const isMatrix = isQuantizable({ name, shape });
  const from = members.map(({ tensor }) => tensor);
  return { name, shape, rows, storedType: isMatrix ? (from[0]?.storedType ?? 0) : 0, isMatrix, from };
}

function changed(name: string, { change }: TensorTarget, tensor: Shaped, config: Config): Shaped {
  if (!change) return tensor;
  try {
    return change(tensor, config);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw misshapen(config, name, tensor.shape);
  }
}

function stack(name: string, members: Group["members"], config: Config): Shaped {
  const inOrder = members.toSorted((one, other) => (one.expert ?? 0) - (other.expert ?? 0));
  const [first] = inOrder;
  if (first === undefined) throw new Error(`${name} has no tensor`);
  if (first.expert === null) return first.tensor;
  const { shape } = first.tensor;
  for (const [i, { expert, tensor }] of inOrder.entries()) {
    if (expert !== i) throw missing(config, `${name} lacks part ${i} of its ${inOrder.length} parts`);
    if (tensor.shape.join() !== shape.join()) throw misshapen(config, tensor.name, tensor.shape);
  }
  return { rows: joined(inOrder.map(({ tensor }) => tensor.rows)), shape: [...shape, inOrder.length] };
}

function checkLayers(config: Config, groups: ReadonlyMap<string, Group>): void {
  const found = new Set([...groups.values()].map(({ layer }) => layer));
  for (let layer = 0; layer < config.layers; layer++) {
    if (!found.has(layer)) throw missing(config, `there is no tensor of layer ${layer} of ${config.layers}`);
  }
}

/** Checks a component without layers, all of whose tensors are required. */
function checkComplete({ tensors }: TensorRules, config: Config, groups: ReadonlyMap<string, Group>): void {
  const found = new Set([...groups.values()].map(({ target }) => target.to));
  for (const [name, targets] of Object.entries(tensors)) {
    if (targets !== null && targetsOf(targets).some(({ to }) => !found.has(to))) {
      throw missing(config, `there is no tensor ${name}`);
    }
  }
}

function unknownTensor({ name }: TensorRules, { path }: Config, tensor: string): ServerError {
  return new ServerError(
    "model_file_invalid",
    `the files beside ${path} have the tensor ${quote(tensor)}, which the architecture ${name} does not have; ` +
      "fetch the model again, or a GGUF file of it",
  );
}

function missing({ path }: Config, problem: string): ServerError {
  return new ServerError(
    "model_file_invalid",
    `the files beside ${path} are incomplete: ${problem}; fetch the model again`,
  );
}

function doubled({ path }: Config, name: string, tensor: string): ServerError {
  return new ServerError(
    "model_file_invalid",
    `the files beside ${path} have two tensors for ${name}, one of them ${quote(tensor)}; fetch the model again`,
  );
}

function misshapen({ path }: Config, name: string, shape: readonly number[]): ServerError {
  return new ServerError(
    "model_file_invalid",
    `the files beside ${path} have ${quote(name)} as ${shape.join(" x ")} (columns first), which does not fit ` +
      "config.json; fetch both again, from one place",
  );
}
