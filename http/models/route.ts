// GET /v1/models and GET /v1/models/{model}. The list begins with the entry `default`, followed by every configured model and
// then its adapters. The header anthropic-version selects the format of the messages protocol.
import { type AdapterCard, adapterCards, cardNamed } from "../../actors/api/adapter-cards.ts";
import type { Agents } from "../../actors/api/agent/agents.ts";
import type { Inference, ModelCapabilities, ModelEntry } from "../../actors/api/inference.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { Context, RouteHandler } from "../context.ts";
import { wireDefaults } from "../shared/answer/wire-defaults.ts";
import { readQuery } from "../shared/read-query.ts";
import { hasVersionHeader } from "../shared/version-header.ts";
import { sharedFileName } from "./file-route.ts";
import { modelInfo, modelPage, modelPageQuery } from "./messages-form.ts";
import type { WireModel } from "./operation.ts";
import { wireRequantization } from "./requantization.ts";

const DEFAULT_ID = "default";

/** Data about the server for the model entries. */
interface ServerFacts {
  readonly toolServers: Agents["toolServers"];
  readonly sharesModelFiles: boolean;
}

export const listModels: RouteHandler = (exchange, context) => {
  const data = wireModels(context.inference, serverFacts(context));
  const isPaged = hasVersionHeader(exchange.request);
  const page = isPaged ? modelPage(data, readQuery(exchange.request.query, modelPageQuery)) : { object: "list", data };
  exchange.json(200, page);
};

export const retrieveModel: RouteHandler = (exchange, context) => {
  const model = entryOf(exchange.parameters.model ?? DEFAULT_ID, context.inference, serverFacts(context));
  exchange.json(200, hasVersionHeader(exchange.request) ? modelInfo(model) : model);
};

function serverFacts({ agents, config }: Context): ServerFacts {
  return { toolServers: agents?.toolServers ?? null, sharesModelFiles: config.sharesModelFiles };
}

function wireModels(inference: Inference, facts: ServerFacts): readonly WireModel[] {
  const models = inference.models();
  const cards = adapterCards(models);
  const data = models.flatMap((model) => [
    modelEntry(model.id, model, facts),
    ...cards.filter(({ modelId }) => modelId === model.id).map((card) => cardEntry(card, model, facts)),
  ]);
  return models.length > 0 ? [entryOf(DEFAULT_ID, inference, facts), ...data] : [];
}

/** Returns the entry of a model by the name that requests use. Throws `model_not_found`. */
function entryOf(name: string, inference: Inference, facts: ServerFacts): WireModel {
  const { id, adapter } = inference.resolveModel(name);
  const models = inference.models();
  const model = models.find((known) => known.id === id);
  const card = adapter === null ? null : cardNamed(name, models);
  if (model !== undefined && card !== null) return cardEntry(card, model, facts);
  if (model !== undefined && adapter === null) return modelEntry(name, model, facts);
  throw new ServerError("model_not_found", `model "${name}" was removed; see GET /v1/models`);
}

function modelEntry(id: string, model: ModelEntry, facts: ServerFacts): WireModel {
  const { speech = null, isDiffusion = false, loadError = null } = model;
  const generates = model.capabilities?.generates ?? (speech === null && !isDiffusion);
  const { toolServers } = facts;
  const fileName = facts.sharesModelFiles ? sharedFileName(model) : null;
  return {
    id,
    object: "model",
    created: model.createdAt,
    owned_by: "local",
    status: model.status,
    ...(loadError === null ? {} : { load_error: loadError }),
    ...(speech === null ? {} : { speech: wireSpeech(speech, model.capabilities) }),
    ...(isDiffusion ? { diffusion: wireDiffusion(model.capabilities) } : {}),
    ...(model.capabilities === null ? {} : sizesOf(model.capabilities)),
    ...(model.loadProgress === null ? {} : { load_progress: model.loadProgress }),
    ...quantizationOf(model),
    ...(generates && !isTextOnly(model) ? { defaults: wireDefaults(model.defaults) } : {}),
    ...(model.capabilities === null ? {} : { input_modalities: modalitiesOf(model.capabilities) }),
    tools_available: model.capabilities?.generates ?? false,
    ...(toolServers === null
      ? {}
      : { mcp_tools_count: toolServers.tools, mcp_servers_connected: toolServers.connected }),
    ...(fileName === null ? {} : { file_name: fileName }),
    ...(model.isDownloaded ? { downloaded: true } : {}),
  };
}

function wireSpeech(
  { task, engine }: NonNullable<ModelEntry["speech"]>,
  capabilities: ModelCapabilities | null,
): NonNullable<WireModel["speech"]> {
  const card = capabilities?.speech ?? null;
  if (card === null) return { task, engine };
  const { sampleRate, voices, languages } = card;
  const can = task === "speak" ? { voices: voices.length } : { languages: [...languages] };
  return { task, engine, sample_rate: sampleRate, ...can };
}

function wireDiffusion(capabilities: ModelCapabilities | null): NonNullable<WireModel["diffusion"]> {
  const card = capabilities?.diffusion ?? null;
  if (card === null) return {};
  const { nativeSize, sizeMultiple, limits, defaults } = card;
  return {
    native_size: nativeSize,
    size_multiple: sizeMultiple,
    max_pixels: limits.maxPixels,
    max_steps: limits.maxSteps,
    scheduler: defaults.scheduler,
    steps: defaults.steps,
    guidance_scale: defaults.guidance,
  };
}

/**
 * Returns whether a model runs on a remote server that returns only text. Its context length is unknown, and the remote server
 * sets the sampling defaults.
 */
function isTextOnly({ capabilities }: Pick<ModelEntry, "capabilities">): boolean {
  return capabilities?.generates === true && capabilities.maxModelLength === 0;
}

function sizesOf(capabilities: ModelCapabilities): Partial<WireModel> {
  const { maxModelLength, trainedContext, parameterCount, weightBytes, kvCacheBytes } = capabilities;
  if (capabilities.speech || capabilities.diffusion) return { weight_bytes: weightBytes };
  if (isTextOnly({ capabilities })) return {};
  return {
    max_model_len: maxModelLength,
    trained_context: trainedContext,
    parameter_count: parameterCount,
    weight_bytes: weightBytes,
    kv_cache_bytes: kvCacheBytes,
  };
}

function quantizationOf({ capabilities, requantization }: ModelEntry): Partial<WireModel> {
  const quantization = capabilities?.file?.weightType ?? null;
  const change = requantization === undefined || requantization === null ? null : wireRequantization(requantization);
  return {
    ...(quantization === null ? {} : { quantization }),
    ...(change === null ? {} : { requantization: change }),
  };
}

function cardEntry({ id, modelId, adapter }: AdapterCard, model: ModelEntry, facts: ServerFacts): WireModel {
  return {
    ...modelEntry(id, model, { ...facts, sharesModelFiles: false }),
    created: adapter.createdAt,
    root: adapter.alias,
    parent: modelId,
    adapter_generation: adapter.generation,
  };
}

function modalitiesOf({ takesImages, takesAudio }: ModelCapabilities): ("text" | "image" | "audio")[] {
  return ["text", ...(takesImages ? (["image"] as const) : []), ...(takesAudio ? (["audio"] as const) : [])];
}
