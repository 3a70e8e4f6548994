// Web search of a server: starts the web thread with options from the settings, and supplies the embedding model that ranks
// results.
import type { Inference } from "../../../actors/api/inference.ts";
import { type EmbedTexts, WebClient } from "../../../actors/front/web-client.ts";
import { packedTexts } from "../../../http/shared/fields/embed-inputs.ts";
import type { Logger } from "../../../runtime/log/log.ts";
import type { Config } from "../../config/config.ts";
import { modelNamed } from "../../config/rules.ts";

const mailboxLimit = 1024;

export async function openWeb(
  config: Pick<Config, "search" | "searchEmbeddingModel" | "models">,
  inference: Pick<Inference, "embed">,
  log: Logger,
): Promise<WebClient> {
  const { provider: name, url, apiKey, results } = config.search;
  const model = modelNamed(config.searchEmbeddingModel, config.models);
  const embed = model === undefined ? null : embedderOf(model.id, inference);
  const web = new WebClient({ init: { provider: { name, url, apiKey }, results, mailboxLimit }, embed, log });
  await web.start();
  return web;
}

function embedderOf(model: string, inference: Pick<Inference, "embed">): EmbedTexts {
  return async (texts, inputType, client, signal) => {
    const request = { model, client, inputs: packedTexts(texts), inputType, truncateInputs: true, priority: 0 };
    const { vectors } = await inference.embed(request, signal);
    return vectors;
  };
}
