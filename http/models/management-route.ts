// Model management routes: POST /v1/models/status, /v1/models/reload and /v1/models/unload.
import type { ModelManagement, ModelOutcome } from "../../actors/api/model-management.ts";
import { type ErrorRecord, ServerError, toErrorRecord } from "../../runtime/errors.ts";
import type { RouteHandler } from "../context.ts";
import { errorHeaders, statusOf } from "../errors.ts";
import type { Exchange } from "../exchange.ts";
import { readJson } from "../json.ts";
import { managedRequestSchema, type WireManagedModel } from "./management-operation.ts";

type Change = (models: ModelManagement, name: string) => Promise<ModelOutcome>;

export const modelStatus: RouteHandler = async (exchange, { models, log }) => {
  const { model_id: name } = readJson(exchange.request, managedRequestSchema, log);
  const outcome = await known(exchange, name, () => models.statusOf(name));
  // A model that was unloaded because of an error still has a valid status, so the response is 200 and includes the error.
  if (outcome !== null) exchange.json(200, wireModel(outcome));
};

export const reloadModel = changing((models, name) => models.reload(name));
export const unloadModel = changing((models, name) => models.unload(name));

function changing(change: Change): RouteHandler {
  return async (exchange, { models, log }) => {
    const { model_id: name } = readJson(exchange.request, managedRequestSchema, log);
    const outcome = await known(exchange, name, () => change(models, name));
    if (outcome === null || exchange.request.signal.aborted) return;
    if (outcome.error === null) exchange.json(200, wireModel(outcome));
    else fail(exchange, outcome.error, wireModel(outcome));
  };
}

/** Returns the outcome for a model. If the model does not exist, sends the error response and returns null. */
async function known(
  exchange: Exchange,
  name: string,
  ask: () => ModelOutcome | Promise<ModelOutcome>,
): Promise<ModelOutcome | null> {
  try {
    const outcome = await ask();
    exchange.model = outcome.id;
    return outcome;
  } catch (thrown) {
    if (!(thrown instanceof ServerError) || thrown.code !== "model_not_found") throw thrown;
    fail(exchange, toErrorRecord(thrown), { model_id: name, status: "not_found", error: thrown.message });
    return null;
  }
}

function wireModel({ id, status, error }: ModelOutcome): WireManagedModel {
  return { model_id: id, status, ...(error === null ? {} : { error: error.message }) };
}

/** Sends an error with its HTTP status, in the response format of the management routes. */
function fail(exchange: Exchange, error: ErrorRecord, model: WireManagedModel): void {
  const status = statusOf(error.code);
  exchange.errorCode = error.code;
  const body: WireManagedModel = status < 500 ? model : { ...model, status: "internal_error" };
  const headers = { "content-type": "application/json", ...errorHeaders(error) };
  exchange.send(status, headers, JSON.stringify(body));
}
