// Web search of a server: options of the web thread from the settings, and the embedding model that ranks results.

import type { Inference } from "../../../actors/api/inference.ts";
import { type EmbedTexts, WebClient } from "../../../actors/front/web-client.ts";
import { packedTexts } from "../../../http/shared/fields/embed-inputs.ts";
import { ServerError } from "../../../runtime/errors.ts";
import type { Logger } from "../../../runtime/log/log.ts";
import type { Config } from "../../config/config.ts";

const mailboxLimit = 1024;

/** Starts the web thread. Throws config_invalid if the settings of the provider are incomplete. */
export async function openWeb(
  config: Pick<Config, "search" | "searchEmbeddingModel" | "models">,
  inference: Pick<Inference, "embed">,
  log: Logger,
): Promise<WebClient> {
  const { provider: name, url, apiKey, results } = config.search;
  if (name === "searxng" && url === null) {
    throw invalid(
      "search_provider = searxng expects search_url, the address of a SearXNG server; got none",
      "search_url",
    );
  }
  if ((name === "brave" || name === "tavily") && apiKey === null) {
    throw invalid(`search_provider = ${name} expects a key in the variable SEARCH_API_KEY; got none`, "search_api_key");
  }
  const model = embeddingModel(config);
  const embed = model === null ? null : embedderOf(model, inference);
  const web = new WebClient({ init: { provider: { name, url, apiKey }, results, mailboxLimit }, embed, log });
  await web.start();
  return web;
}

/** Returns the id of the model that ranks results; null: none. */
function embeddingModel({ searchEmbeddingModel: name, models }: Pick<Config, "searchEmbeddingModel" | "models">) {
  if (name === null) return null;
  const model = models.find(({ id, modelId, alias }) => [id, modelId, alias].includes(name));
  if (model !== undefined) return model.id;
  const known = models.map(({ id }) => id).join(", ");
  const message = `search_embedding_model expects the id or alias of a configured model (${known}); got "${name}": add the model with -m and --alias`;
  throw invalid(message, "search_embedding_model");
}

function embedderOf(model: string, inference: Pick<Inference, "embed">): EmbedTexts {
  return async (texts, client, signal) => {
    const inputs = packedTexts(texts);
    const { vectors } = await inference.embed({ model, client, inputs, truncateInputs: true, priority: 0 }, signal);
    return vectors;
  };
}

function invalid(message: string, param: string): ServerError {
  return new ServerError("config_invalid", message, { param });
}
