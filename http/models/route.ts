// Owns GET /v1/models, every configured model after an entry `default`, which stands for the default one, and the entry of a
// single model.
import type { Inference, ModelEntry } from "../../actors/inference.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { RouteHandler } from "../context.ts";
import type { WireModel } from "./operation.ts";

const DEFAULT_ID = "default";

export const listModels: RouteHandler = (exchange, { inference }) => {
  const models = inference.models();
  const data = models.map((model) => entry(model.id, model));
  if (models.length > 0) data.unshift(entryOf(DEFAULT_ID, inference));
  exchange.json(200, { object: "list", data });
};

export const retrieveModel: RouteHandler = (exchange, { inference }) => {
  exchange.json(200, entryOf(exchange.parameters.model ?? DEFAULT_ID, inference));
};

/** The entry of a model by the name that requests give it. Throws `model_not_found`. */
function entryOf(name: string, inference: Inference): WireModel {
  const id = inference.resolveModel(name);
  const model = inference.models().find((known) => known.id === id);
  if (model === undefined) throw new ServerError("model_not_found", `model "${name}" is not there any more`);
  return entry(name, model);
}

function entry(id: string, model: ModelEntry): WireModel {
  return {
    id,
    object: "model",
    created: model.createdAt,
    owned_by: "local",
    status: model.status,
    tools_available: model.capabilities?.generates ?? false,
  };
}
