// MTP loading: opens the MTP heads in a model's file, or an assistant (a separate model that serves as MTP head). Called
// by the loader after the model's context is open. Heads that do not fit the model are rejected here with a clear error,
// because llama.cpp would end the process.
import { ServerError } from "../../../runtime/errors.ts";
import type { Capacity, ModelSpec } from "../../engine.ts";
import { type ModelTraits, metadata } from "../model-traits.ts";
import { type LlamaFunctions, type NativeContextParams, poolingType, predictionContext } from "../native/abi.ts";
import { type Cores, NativeContext } from "../native/native-context.ts";
import type { Pointer } from "../native/pointer.ts";
import { LlamaHeads } from "./mtp.ts";

/**
 * Architectures whose MTP heads the supported release can run, and whose KV caches can drop the last tokens of a
 * sequence. If a model has several heads, the first one drafts all tokens.
 */
const mtpArchitectures: ReadonlySet<string> = new Set([
  "cohere2moe",
  "deepseek2",
  "deepseek32",
  "glm-dsa",
  "glm4moe",
  "hy_v3",
  "mimo2",
  "step35",
]);
/** Architecture of an assistant (a separate MTP model) that reads the KV cache of the main model. All its layers form one head. */
const sharingAssistant = "gemma4-assistant";
const sharingTarget = "gemma4";
const sharingTrainedTokens = 4;

/** Maximum number of outputs per sequence in an MTP pass: for the newest token and some tokens before it. */
const outputsPerSequence = 4;

export interface HeadsRequest {
  readonly spec: ModelSpec;
  readonly target: NativeContext;
  readonly params: NativeContextParams;
  readonly capacity: Capacity;
  readonly cores: Cores;
  loadAssistant(path: string): Pointer;
  openContext(model: Pointer, params: NativeContextParams): Pointer;
}

/**
 * Returns the traits of a model used with MTP: its KV cache is one pool, the last tokens of every sequence can be
 * dropped, and the KV size includes the MTP layers. Throws `config_invalid` if the model cannot be used with MTP.
 */
export function mtpTraits(
  functions: LlamaFunctions,
  model: Pointer,
  traits: ModelTraits,
  spec: ModelSpec,
): ModelTraits {
  const { path, pagedKv, mtp } = spec;
  if (functions.modelIsRecurrent(model) || functions.modelIsHybrid(model) || traits.isEncoder) {
    throw unusable(spec, `"${path}" cannot drop rejected draft tokens`);
  }
  if (traits.pooling === "rank") throw unusable(spec, `"${path}" is a reranker, which gives scores`);
  if (pagedKv === false) throw unusable(spec, "multi-token prediction needs the shared pool of paged_attn");
  const layers = mtp?.path === null ? functions.modelPredictionLayerCount(model) : 0;
  return { ...traits, rollsBack: true, kv: { ...traits.kv, layers: traits.kv.layers + layers } };
}

export function openHeads(request: HeadsRequest): LlamaHeads {
  const { spec, target } = request;
  const { functions } = target;
  const path = spec.mtp?.path ?? null;
  if (path === null) {
    checkOwn(functions, target.model, spec);
    return open(request, target.model, false);
  }
  const assistant = request.loadAssistant(path);
  try {
    checkAssistant(target, assistant, path, spec);
    return open(request, assistant, true);
  } catch (error) {
    functions.modelFree(assistant);
    throw error;
  }
}

function open(request: HeadsRequest, model: Pointer, ownsModel: boolean): LlamaHeads {
  const { target, params, capacity, cores } = request;
  const { functions } = target;
  const { maxSequences } = capacity;
  const prediction = functions.prediction();
  const sharesMemory = architectureOf(functions, model) === sharingAssistant;
  const maxOutputs = Math.max(outputsPerSequence * maxSequences, params.n_seq_max);
  const headParams = {
    ...params,
    ctx_type: predictionContext,
    ctx_other: target.pointer,
    n_outputs_max: maxOutputs,
    n_outputs_max_per_seq: maxOutputs,
    pooling_type: poolingType.none,
  };
  const context = new NativeContext({
    functions,
    model,
    context: request.openContext(model, headParams),
    cores,
  });
  prediction.setStates(target.pointer, true, false);
  prediction.setStates(context.pointer, true, true);
  const layers = functions.modelPredictionLayerCount(model);
  const parts = {
    target,
    context,
    prediction,
    sharesMemory,
    ownsModel,
    width: functions.modelOutputEmbeddingLength(target.model),
    vocabSize: functions.vocabTokenCount(target.vocab),
    maxSequences,
    batchTokens: params.n_batch,
    maxOutputs,
  };
  return new LlamaHeads(parts, sharesMemory ? sharingTrainedTokens : layers);
}

function checkOwn(functions: LlamaFunctions, model: Pointer, spec: ModelSpec): void {
  const architecture = architectureOf(functions, model);
  const layers = functions.modelPredictionLayerCount(model);
  if (layers > 0 && mtpArchitectures.has(architecture)) return;
  throw unusable(
    spec,
    `"${spec.path}" (${architecture}) has ${layers > 0 ? "MTP heads that llama.cpp does not run" : "no MTP heads"}`,
  );
}

function checkAssistant(target: NativeContext, assistant: Pointer, path: string, spec: ModelSpec): void {
  const { functions, model } = target;
  const architecture = architectureOf(functions, assistant);
  const ofTarget = architectureOf(functions, model);
  const expected = ofTarget === sharingTarget ? sharingAssistant : ofTarget;
  const isKnown = expected === sharingAssistant || mtpArchitectures.has(expected);
  if (!isKnown || architecture !== expected || functions.modelPredictionLayerCount(assistant) === 0) {
    throw unusable(spec, `"${path}" (${architecture}) is not an assistant of "${spec.path}" (${ofTarget})`);
  }
  const sizes = (of: Pointer) => [
    functions.modelOutputEmbeddingLength(of),
    functions.vocabTokenCount(functions.modelGetVocab(of)),
  ];
  const [width, vocabulary] = sizes(assistant);
  const [targetWidth, targetVocabulary] = sizes(model);
  if (width === targetWidth && vocabulary === targetVocabulary) return;
  const got = `states of ${width} floats and ${vocabulary} tokens, expected ${targetWidth} and ${targetVocabulary}`;
  throw unusable(spec, `"${path}" is not an assistant of "${spec.path}": it has ${got}`);
}

function architectureOf(functions: LlamaFunctions, model: Pointer): string {
  return metadata(functions, model, "general.architecture") ?? "unknown";
}

function unusable({ mtp }: ModelSpec, problem: string): ServerError {
  const [param, expected] =
    mtp?.path == null
      ? ["mtp_n_predict", "a model with MTP heads (multi-token prediction)"]
      : ["mtp_model", "an assistant made for the model it drafts for"];
  return new ServerError("config_invalid", `${param} expects ${expected}; ${problem}: remove it`, { param });
}
