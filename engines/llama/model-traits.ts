// Model traits: whether a model generates, whether the last tokens of a sequence can be dropped, the pooling method,
// and the size of its KV cache. The loader reads the traits when the weights have been loaded. Models that this engine
// cannot run are rejected here.
import { ServerError } from "../../runtime/errors.ts";
import type { KvShape } from "../decoding/kv/kv-budget.ts";
import type { ModelSpec, SequencePooling } from "../engine.ts";
import { ggmlTypeBytes, type LlamaFunctions, poolingType } from "./native/abi.ts";
import type { Pointer } from "./native/pointer.ts";

export interface ModelTraits {
  readonly kv: KvShape;
  /** Whether the attention is bidirectional. Such a model has pooled outputs only, and no KV cache. */
  readonly isEncoder: boolean;
  /** Whether the last tokens of a sequence can be dropped, and KV cells can be shared between sequences. */
  readonly rollsBack: boolean;
  readonly pooling: SequencePooling | null;
  readonly pooledLength: number;
  /** Whether each token has four positions: time, row, column and an unused one (M-RoPE). */
  readonly hasMrope: boolean;
}

/** Rope types of llama.h in which a token has several positions: M-RoPE, and M-RoPE with interleaved sections. */
const mropeTypes: ReadonlySet<number> = new Set([8, 40]);

/** Encoder architectures whose files lack the key `attention.causal` = false that other encoders have. */
const silentEncoders: ReadonlySet<string> = new Set(["gemma-embedding"]);

export function traitsOf(functions: LlamaFunctions, model: Pointer, spec: ModelSpec): ModelTraits {
  const architecture = metadata(functions, model, "general.architecture") ?? "";
  refuseOthers(functions, model, spec, architecture);
  const ofArchitecture = (key: string) => metadata(functions, model, `${architecture}.${key}`);
  const isEncoder = ofArchitecture("attention.causal") === "false" || silentEncoders.has(architecture);
  const recurrent = functions.modelIsRecurrent(model) || functions.modelIsHybrid(model);
  const pooling = poolingOf(Number(ofArchitecture("pooling_type") ?? poolingType.none), isEncoder);
  return {
    kv: kvShape(functions, model, spec, ofArchitecture),
    isEncoder,
    rollsBack: !recurrent && !isEncoder && functions.modelSlidingWindow(model) === 0,
    pooling,
    pooledLength: pooledLength(functions, model, pooling),
    hasMrope: mropeTypes.has(functions.modelRopeType(model)),
  };
}

export function kvTypeOf({ kvType }: ModelSpec) {
  return kvType === "auto" ? "f16" : kvType;
}

function refuseOthers(functions: LlamaFunctions, model: Pointer, { path }: ModelSpec, architecture: string): void {
  const kind = functions.modelIsDiffusion(model) ? "is a diffusion model" : "is an encoder-decoder model";
  if (!functions.modelIsDiffusion(model) && !functions.modelHasEncoder(model)) return;
  const message = `"${path}" (${architecture}) ${kind}; expected a model that generates token by token, or an encoder`;
  throw new ServerError("model_file_invalid", message);
}

function poolingOf(type: number, isEncoder: boolean): SequencePooling | null {
  switch (type) {
    case poolingType.last:
      return "last";
    case poolingType.rank:
      return "rank";
    case poolingType.cls:
      // With causal attention, the first token's hidden state does not depend on the later tokens, so pooling by "cls"
      // is useless.
      return isEncoder ? "cls" : null;
    default:
      return "mean";
  }
}

function pooledLength(functions: LlamaFunctions, model: Pointer, pooling: SequencePooling | null): number {
  if (pooling === null) return 0;
  return pooling === "rank" ? functions.modelScoreCount(model) : functions.modelOutputEmbeddingLength(model);
}

function kvShape(
  functions: LlamaFunctions,
  model: Pointer,
  spec: ModelSpec,
  ofArchitecture: (key: string) => string | null,
): KvShape {
  const headLength = Math.floor(functions.modelEmbeddingLength(model) / Math.max(functions.modelHeadCount(model), 1));
  const length = (kind: string) => Number(ofArchitecture(`attention.${kind}_length`) ?? headLength);
  return {
    layers: functions.modelLayerCount(model),
    elementsPerLayer: functions.modelKvHeadCount(model) * (length("key") + length("value")),
    bytesPerElement: ggmlTypeBytes[kvTypeOf(spec)],
    trainedContext: functions.modelTrainedContext(model),
  };
}

export function metadata(functions: LlamaFunctions, model: Pointer, key: string): string | null {
  const buffer = Buffer.alloc(256);
  const length = functions.modelMetadata(model, key, buffer, buffer.length);
  return length < 0 ? null : buffer.toString("utf8", 0, Math.min(length, buffer.length - 1));
}
