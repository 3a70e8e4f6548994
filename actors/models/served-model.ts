// ServedModel: the settings of one configured model, and errors and log fields about models.
import type { DiffusionCard, DiffusionSpec } from "../../engines/diffusion/diffusion.ts";
import type { EngineName, ModelSpec } from "../../engines/engine.ts";
import type { PreparedAdapter } from "../../engines/files/lora/prepared-adapter.ts";
import type { RemoteSettings } from "../../engines/remote/upstream.ts";
import { defaultedFields, type GenerationDefaults } from "../../engines/sampling-defaults.ts";
import type { SpeechCard, SpeechSpec } from "../../engines/speech/speech.ts";
import { type ErrorRecord, toErrorRecord } from "../../runtime/errors.ts";
import type { Place, PlaceKind } from "../../runtime/thread/place.ts";
import type { ModelCapabilities, ModelFileFacts } from "../api/inference.ts";
import type { AdapterSettings } from "../lora-registry/model-adapters.ts";
import type { DiffusionLimits, LeasedAdapter, ModelPlaceReady, ModelStatistics, SpeechLimits } from "../messages.ts";

/** Settings of a diffusion model. */
export interface DiffusionSettings {
  readonly spec: DiffusionSpec;
  readonly limits: DiffusionLimits;
}

/** Settings of a speech model. */
export interface SpeechSettings {
  readonly spec: SpeechSpec;
  readonly limits: SpeechLimits;
}

export interface ServedModel {
  /** Settings of a speech model, whose engine is `speech.spec.engine`; absent = the model generates tokens with `engine`. */
  readonly speech?: SpeechSettings;
  /** Settings of a diffusion model; absent = not a diffusion model. */
  readonly diffusion?: DiffusionSettings;
  readonly id: string;
  readonly engine: EngineName | "remote";
  readonly spec: ModelSpec;
  /**
   * Upstream servers of a remote model; null or absent = the model runs on this machine. For a remote model, `spec.path` contains
   * only its vocabulary.
   */
  readonly remote?: RemoteSettings | null;
  /** Upstream servers that return text only; absent = the model generates tokens, locally or remotely. */
  readonly textRemote?: RemoteSettings;
  /** Level to which the model was quantized at load time; null or absent = it was not quantized. */
  readonly level?: string | null | undefined;
  /** Whether the model was downloaded at the request of a client, and may be removed by clients. */
  readonly isDownloaded?: boolean;
  readonly chatTemplate: string | null;
  readonly jinjaExplicit: string | null;
  /** Prompt prefixes for inputs to embed, by input type; absent = use the model's own prefixes. */
  readonly prompts?: Readonly<Record<string, string>>;
  readonly kind: PlaceKind;
  readonly defaults: GenerationDefaults;
  /** Settings of adapters that can be loaded at run time; null = not supported. spec.adapters has the same limits. */
  readonly adapters: AdapterSettings | null;
  /**
   * Fixed adapter that every request uses; null = no fixed adapter. A model with a fixed adapter supports no other adapters, so
   * `adapters` is null.
   */
  readonly ownAdapter: PreparedAdapter | null;
}

/** The settings of a model that change with its quantization. */
export type ModelWeights = Pick<ServedModel, "spec" | "level">;

/** Statistics of a model. queueFull and queueTimeouts count its rejected requests since the start of the server. */
export interface ServedStatistics extends ModelStatistics {
  readonly queueFull: number;
  readonly queueTimeouts: number;
}

/** Lease that every request to a model with a fixed adapter holds on that adapter. */
export const ownRunAdapter: LeasedAdapter = { id: 1, generation: null };

/** Returns the capabilities of a loaded model. The pooling "rank" yields a score for two texts, so it does not count as embedding. */
export function capabilitiesOf(
  { card, capacity, capabilities, images, audio, speech, diffusion }: ModelPlaceReady,
  file: ModelFileFacts | null,
): ModelCapabilities {
  const { generates, pooling, pooledLength } = capabilities;
  return {
    generates,
    takesImages: Boolean(images),
    takesAudio: Boolean(audio),
    embeds: pooling !== null && pooling !== "rank",
    embedsTokens: pooling === "tokens",
    maxModelLength: capacity.sequenceTokens,
    trainedContext: card.trainedContext,
    parameterCount: card.parameterCount,
    weightBytes: card.tensorBytes,
    kvCacheBytes: card.kvCacheBytes,
    embeddingLength: pooling === null ? 0 : pooledLength,
    file,
    diffusion: diffusion ?? null,
    speech: speech ?? null,
  };
}

/** Returns a warning if the maximum sequence length is below the configured or trained length, else null. */
export function contextCut(
  { spec, engine }: ServedModel,
  { card, capacity, capabilities }: ModelPlaceReady,
): string | null {
  // The context length of a remote model is set on its servers.
  if (engine === "remote") return null;
  const wanted = spec.maxModelLength ?? card.trainedContext;
  if (capacity.sequenceTokens >= wanted || !capabilities.generates) return null;
  return (
    `the context is cut to ${capacity.sequenceTokens} of ${wanted} tokens, because the KV cache has no room for more: ` +
    "free memory, raise kv_cache, lower max_seqs, or choose a smaller cache_type"
  );
}

export function loading(id: string): ErrorRecord {
  return { code: "model_loading", message: `model "${id}" is being loaded; try again shortly` };
}

export function failed(id: string, error: unknown): ErrorRecord {
  return { code: "model_failed", message: `model "${id}" could not be loaded: ${toErrorRecord(error).message}` };
}

export function notLoaded(id: string): ErrorRecord {
  return {
    code: "model_state_conflict",
    message: `model "${id}" is not loaded, or about to be unloaded; load it first`,
  };
}

/** Returns the error for a request that needs tokens from a model that does not generate tokens; null = the model generates tokens. */
export function tokenless({ id, speech, diffusion, textRemote }: ServedModel): ErrorRecord | null {
  if (textRemote !== undefined) {
    const message = `model "${id}" is on a server that gives text only (upstream_mode = "text"), without token ids; use it for chats`;
    return { code: "unsupported", message, param: "model" };
  }
  if (speech === undefined && diffusion === undefined) return null;
  const [what, path] =
    speech === undefined
      ? ['a diffusion model (kind = "diffusion"), which makes images', "/v1/images/generations"]
      : [
          'a speech model (kind = "speech"), which takes no prompts',
          speech.spec.task === "speak" ? "/v1/audio/speech" : "/v1/audio/transcriptions",
        ];
  const message = `model "${id}" is ${what}; use POST ${path}, or name another model`;
  return { code: "unsupported", message, param: "model" };
}

/** Error of requests that end because the server is shutting down. */
export const shuttingDown: ErrorRecord = {
  code: "draining",
  message: "the server is shutting down; send the request to another one",
};

/** Returns the log fields with the default parameters of a model and their sources. */
export function defaultFields({ id, defaults: { sampling, origins, maxTokens } }: ServedModel): object {
  const values = defaultedFields.map((field) => [field, `${sampling[field]} (${origins[field]})`]);
  return { model: id, ...Object.fromEntries(values), ...(maxTokens === null ? {} : { maxTokens }) };
}

function diffusionFields(id: string, loadMs: number, enginePid: number | null, card: DiffusionCard): object {
  const { pipeline, backend, weightBytes, nativeSize, defaults } = card;
  const weightsMiB = Math.round(weightBytes / mebibyte);
  return { model: id, loadMs: Math.round(loadMs), enginePid, pipeline, backend, weightsMiB, nativeSize, ...defaults };
}

function speechFields(id: string, loadMs: number, enginePid: number | null, speech: SpeechCard): object {
  const { engine, task, backend, weightBytes, voices, languages } = speech;
  return {
    model: id,
    loadMs: Math.round(loadMs),
    enginePid,
    engine,
    task,
    backend,
    weightsMiB: Math.round(weightBytes / mebibyte),
    ...(task === "speak" ? { voices: voices.length } : { languages: languages.length }),
  };
}

const mebibyte = 1024 * 1024;

/** Returns the fields of the log line "model loaded". */
export function loadedFields(id: string, loadMs: number, place: Place<ModelPlaceReady>): object {
  const { card, capacity, speech, diffusion } = place.ready;
  if (diffusion !== undefined) return diffusionFields(id, loadMs, place.pid, diffusion);
  if (speech !== undefined) return speechFields(id, loadMs, place.pid, speech);
  return {
    model: id,
    loadMs: Math.round(loadMs),
    enginePid: place.pid ?? process.pid,
    engine: card.engine,
    backend: card.backend,
    weightsMiB: Math.round(card.tensorBytes / mebibyte),
    kvCacheMiB: Math.round(card.kvCacheBytes / mebibyte),
    sequences: capacity.maxSequences,
    tokensPerSequence: capacity.sequenceTokens,
    // If this is less than sequences * tokensPerSequence, all sequences share one pool of KV memory; otherwise each sequence has
    // its own part.
    kvTokens: capacity.kvBlocks * capacity.blockTokens,
  };
}
