// Model names of the Ollama protocol. Clients may add the tag "latest" to a name without a tag.
import type { Inference, ResolvedModel } from "../../actors/api/inference.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { Exchange } from "../exchange.ts";
import { chosenModel } from "../shared/chosen-model.ts";

const LATEST = ":latest";

/** Resolves a model name, with or without the tag "latest", and records the model. Throws model_not_found. */
export function namedModel(exchange: Exchange, inference: Inference, name: string | null | undefined): ResolvedModel {
  try {
    return chosenModel(exchange, inference, { model: name });
  } catch (thrown) {
    const isUnknown = thrown instanceof ServerError && thrown.code === "model_not_found";
    if (!isUnknown || !name?.endsWith(LATEST)) throw thrown;
    return chosenModel(exchange, inference, { model: name.slice(0, -LATEST.length) });
  }
}
