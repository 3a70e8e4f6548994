// Hyperparameters of a model: sizes, scales and attention windows. They are read once, at load, from the file's
// key/value pairs. Defaults are those of llama.cpp. Keys that only one architecture has are read by that architecture's
// file. All returned values are in range, so callers need no checks.
import { ServerError } from "../../../runtime/errors.ts";
import type { TensorInfo, TensorTable } from "../../files/gguf/tensors.ts";
import type { Architecture } from "./architectures/architecture.ts";
import { invalidKey, Keys } from "./keys.ts";
import { type FrequencyFactors, maxContext, readRopes } from "./ropes.ts";
import type { CommonShape, Hyperparameters } from "./shape.ts";

const maxLayers = 1000;
const maxHeads = 4096;
const maxHeadLength = 4096;
const maxExperts = 1024;
/** Maximum number of floats in a head, limited by the attention kernel's scratch memory. */
export const longestHead = 512;
const maxWidth = 1024 * 1024;
const epsilonKeys = { rms: "attention.layer_norm_rms_epsilon", layer: "attention.layer_norm_epsilon" };

/**
 * Reads the hyperparameters from a file's key/value pairs and tensors. Throws `model_file_invalid` or `unsupported`
 * naming the key.
 */
export function readHyperparameters(
  architecture: Architecture,
  { fields, tensors }: Pick<TensorTable, "fields" | "tensors">,
  factors: FrequencyFactors,
): Hyperparameters {
  const name = fields.get("general.architecture");
  if (name !== architecture.name) throw invalidKey("general.architecture", name, `"${architecture.name}"`);
  const keys = new Keys(fields, name);
  const common = readCommon(architecture, keys, readVocabSize(tensors));
  const { rope = {}, ...traits } = architecture.readTraits?.(keys, common) ?? {};
  return {
    ...common,
    embeddingScale: 1,
    residualScale: 1,
    logitScale: 1,
    logitSoftcap: 0,
    attentionScale: 1 / Math.sqrt(common.headLength),
    attentionSoftcap: 0,
    window: 0,
    slides: [],
    alibi: 0,
    expertInterval: 0,
    stackedInputs: 0,
    activation: "silu",
    ...traits,
    ...readRopes(keys, common.rotated, common.trainedContext, factors, rope),
  };
}

/** Returns the hyperparameters for sequences of up to `tokens` tokens: long sequences may need another rope. */
export function shapeForContext(shape: Hyperparameters, tokens: number): Hyperparameters {
  const { longRope, ropes } = shape;
  return longRope && tokens > longRope.beyond ? { ...shape, ropes: [longRope.rope, ...ropes.slice(1)] } : shape;
}

function readCommon(architecture: Architecture, keys: Keys, vocabSize: number): CommonShape {
  checkCausal(architecture, keys);
  const width = keys.count("embedding_length", maxWidth);
  const heads = keys.count("attention.head_count", maxHeads);
  const kvHeads = keys.count("attention.head_count_kv", maxHeads, heads);
  if (heads % kvHeads !== 0) throw keys.invalid("attention.head_count_kv", `a divisor of the ${heads} heads`);
  const headLength = keys.count("attention.key_length", maxHeadLength, Math.trunc(width / heads));
  if (headLength > longestHead || headLength % 4 !== 0) {
    throw keys.unsupported("attention.key_length", `heads of a multiple of 4 floats up to ${longestHead}`);
  }
  keys.mustBe("attention.value_length", headLength);
  keys.mustBe("attention.key_length_swa", headLength);
  keys.mustBe("attention.value_length_swa", headLength);
  const rotated = keys.count("rope.dimension_count", headLength, headLength);
  if (rotated % 2 !== 0) throw keys.invalid("rope.dimension_count", "an even number");
  keys.mustBe("rope.dimension_count_swa", rotated);
  const feedForward = keys.count("feed_forward_length", maxWidth);
  return {
    architecture: architecture.name,
    layers: keys.count("block_count", maxLayers),
    width,
    feedForward,
    heads,
    kvHeads,
    headLength,
    rotated,
    epsilon: keys.number(epsilonKeys[architecture.norm], { above: 0, below: 1 }),
    trainedContext: keys.count("context_length", maxContext),
    vocabSize,
    experts: readExperts(architecture, keys, feedForward),
  };
}

/**
 * Throws if the file's attention.causal contradicts the architecture. If the key is absent, attention is causal, except in
 * architectures that need no such key.
 */
function checkCausal({ isEncoder, encoder }: Architecture, keys: Keys): void {
  const key = "attention.causal";
  const isCausal = keys.value(key) ?? encoder?.needsNoCausalKey !== true;
  if (isCausal === isEncoder) throw keys.unsupported(key, String(!isEncoder));
}

function readExperts(architecture: Architecture, keys: Keys, feedForward: number): CommonShape["experts"] {
  if (!architecture.takesExperts) keys.mustBe("expert_count", 0);
  const count = keys.countOrNone("expert_count", maxExperts);
  if (count === 0) return null;
  const used = keys.count("expert_used_count", count);
  // Models with expert groups are rejected. In these models, a token can use experts from only some of the groups; this
  // engine does not implement that rule.
  if (keys.countOrNone("expert_group_count", maxExperts) > 1) throw keys.unsupported("expert_group_count", "one group");
  return { count, used, feedForward };
}

/**
 * Returns the number of rows of the embedding. The key vocab_size is ignored, because files with an extended vocabulary
 * often have an outdated value of this key.
 */
function readVocabSize(tensors: ReadonlyMap<string, TensorInfo>): number {
  const rows = tensors.get("token_embd.weight")?.shape[1];
  if (rows !== undefined) return rows;
  throw new ServerError(
    "model_file_invalid",
    "the model has no matrix token_embd.weight, which every language model needs; fetch a complete file of it",
  );
}
