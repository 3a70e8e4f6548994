// Models in the format of the Ollama protocol: GET /api/tags, GET /api/ps, POST /api/show and GET /api/version. Some properties
// of a model are unknown until its first load.
import type { z } from "zod";
import { adapterCards } from "../../actors/api/adapter-cards.ts";
import type { ModelCapabilities, ModelEntry } from "../../actors/api/inference.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { RouteHandler } from "../context.ts";
import { readJsonValue } from "../json.ts";
import { acceptedBody } from "../shared/accepted-body.ts";
import { reportIgnored } from "../shared/read-request.ts";
import { namedModel } from "./named-model.ts";
import { NEVER, type runningSchema, showRequestSchema, type showSchema, type tagsSchema } from "./operation.ts";

/** Version of Ollama whose protocol these routes implement. Clients reject servers with a version that they consider too old. */
const PROTOCOL_VERSION = "0.14.2";

/** Digest of a model whose file has not been read: 64 zeros. It has the full length, because clients shorten digests. */
const NO_DIGEST = "0".repeat(64);

type WireTag = z.output<typeof tagsSchema>["models"][number];
type WireDetails = WireTag["details"];

export const tags: RouteHandler = (exchange, { inference }) => {
  exchange.json(200, { models: wireTags(inference.models()) } satisfies z.output<typeof tagsSchema>);
};

export const running: RouteHandler = (exchange, { inference }) => {
  const models = inference.models().filter(({ status }) => status === "loaded");
  const lengths = new Map(models.map(({ id, capabilities }) => [id, capabilities?.maxModelLength ?? 0]));
  const body = wireTags(models).map(({ modified_at: _, ...model }) => {
    const length = lengths.get(model.details.parent_model || model.model) ?? 0;
    return { ...model, expires_at: NEVER, context_length: length };
  });
  exchange.json(200, { models: body } satisfies z.output<typeof runningSchema>);
};

export const show: RouteHandler = (exchange, { inference, log, config }) => {
  const value = readJsonValue(exchange.request, { takesUntyped: exchange.route?.takesUntyped });
  const { body, ignored } = acceptedBody(showRequestSchema, value, config.unknownFields);
  reportIgnored(exchange, ignored, log);
  const { id, adapter } = namedModel(exchange, inference, body.model ?? body.name);
  const model = inference.models().find((known) => known.id === id);
  if (model === undefined) throw new ServerError("model_not_found", `model ${JSON.stringify(id)} was removed`);
  const { capabilities } = model;
  const shown: z.output<typeof showSchema> = {
    parameters: capabilities === null ? "" : `num_ctx ${capabilities.maxModelLength}`,
    details: wireDetails(capabilities, adapter === null ? "" : id),
    model_info: capabilities === null ? {} : modelInfo(capabilities),
    capabilities: capabilities === null ? [] : abilities(capabilities),
    modified_at: time(model.createdAt),
  };
  exchange.json(200, shown);
};

export const version: RouteHandler = (exchange) => {
  exchange.json(200, { version: PROTOCOL_VERSION });
};

/** Returns the entries of the models, each followed by its adapters. */
function wireTags(models: readonly ModelEntry[]): WireTag[] {
  const cards = adapterCards(models);
  return models.flatMap((model) => [
    wireTag(model.id, model, { createdAt: model.createdAt, digest: model.capabilities?.file?.headDigest ?? NO_DIGEST }),
    ...cards
      .filter(({ modelId }) => modelId === model.id)
      .map(({ id, adapter: { createdAt, generation } }) =>
        wireTag(id, model, { createdAt, digest: generation, parent: model.id }),
      ),
  ]);
}

function wireTag(
  name: string,
  { capabilities }: ModelEntry,
  { createdAt, digest, parent = "" }: { createdAt: number; digest: string; parent?: string },
): WireTag {
  return {
    name,
    model: name,
    modified_at: time(createdAt),
    size: capabilities?.weightBytes ?? 0,
    digest,
    details: wireDetails(capabilities, parent),
  };
}

function wireDetails(capabilities: ModelCapabilities | null, parent: string): WireDetails {
  const { architecture = "", weightType = "" } = capabilities?.file ?? {};
  return {
    parent_model: parent,
    format: "gguf",
    family: architecture,
    families: architecture === "" ? [] : [architecture],
    parameter_size: capabilities === null ? "" : inWords(capabilities.parameterCount),
    quantization_level: weightType ?? "",
  };
}

function modelInfo({ file, parameterCount, maxModelLength, embeddingLength }: ModelCapabilities) {
  const architecture = file?.architecture ?? "";
  return {
    ...(architecture === "" ? {} : { "general.architecture": architecture }),
    "general.parameter_count": parameterCount,
    ...(architecture === "" ? {} : { [`${architecture}.context_length`]: maxModelLength }),
    ...(architecture === "" || embeddingLength === 0 ? {} : { [`${architecture}.embedding_length`]: embeddingLength }),
  };
}

function abilities({
  generates,
  embeds,
  embedsTokens = false,
  file,
}: ModelCapabilities): z.output<typeof showSchema>["capabilities"] {
  const chats = generates && (file?.chats ?? false);
  return [
    ...(generates ? (["completion"] as const) : []),
    // Every model with a chat template accepts tools.
    ...(chats ? (["tools"] as const) : []),
    ...(chats && file?.reasons ? (["thinking"] as const) : []),
    // The model must have one embedding per text (not per token), because this is what POST /api/embed returns.
    ...(embeds && !embedsTokens ? (["embedding"] as const) : []),
  ];
}

/** Formats the number of parameters as clients display it, for example 596.05M or 8.0B. */
function inWords(count: number): string {
  if (count >= 1e9) return `${(count / 1e9).toFixed(1)}B`;
  return count >= 1e6 ? `${(count / 1e6).toFixed(2)}M` : `${(count / 1e3).toFixed(2)}K`;
}

function time(unixSeconds: number): string {
  return new Date(unixSeconds * 1000).toISOString();
}
