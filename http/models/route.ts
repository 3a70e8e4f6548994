// Owns GET /v1/models: every configured model after an entry `default`, which stands for the default one.
import type { ModelEntry } from "../../actors/inference.ts";
import type { RouteHandler } from "../context.ts";

export const listModels: RouteHandler = (exchange, { inference }) => {
  const models = inference.models();
  const data = models.map((model) => entry(model.id, model));
  if (models.length > 0) {
    const defaultId = inference.resolveModel(undefined);
    const target = models.find((model) => model.id === defaultId);
    if (target !== undefined) data.unshift(entry("default", target));
  }
  exchange.json(200, { object: "list", data });
};

function entry(id: string, model: ModelEntry): object {
  return {
    id,
    object: "model",
    created: model.createdAt,
    owned_by: "local",
    status: model.status,
    tools_available: false,
  };
}
