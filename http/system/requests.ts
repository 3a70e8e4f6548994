// GET /v1/system/requests and POST /v1/system/requests/{request_id}/cancel: the inference requests in progress.
import { z } from "zod";
import { ServerError } from "../../runtime/errors.ts";
import type { RouteHandler } from "../context.ts";
import { type ActiveRequest, MAX_LISTED } from "../observe/active-requests.ts";

const count = z.int().min(0);

const activeRequestSchema = z
  .strictObject({
    id: z.string().meta({ description: "Request id, as in the header x-request-id and in the access log." }),
    path: z.string(),
    model: z.string(),
    client: z.string().meta({ description: "Address of the client, as in the access log." }),
    stream: z.boolean(),
    state: z.enum(["queued", "generating"]).meta({
      description:
        "queued: until the first token, while the request waits for its model or for a slot, or while its prompt is computed.",
    }),
    received_at: count.meta({ description: "Unix time in seconds." }),
    prompt_tokens: count.nullable().meta({ description: "null while the request is queued." }),
    completion_tokens: count.meta({
      description: "Pieces of output so far, which are about as many as the tokens; `usage` has the exact number.",
    }),
  })
  .meta({ id: "ActiveRequest" });

export const activeRequestListSchema = z.strictObject({
  object: z.literal("list"),
  data: z.array(activeRequestSchema).meta({ description: `The oldest first; at most ${MAX_LISTED}.` }),
  has_more: z.boolean(),
});

export const cancelledRequestSchema = z.strictObject({
  id: z.string(),
  object: z.literal("request"),
  cancelled: z.literal(true),
});

export const listRequests: RouteHandler = (exchange, { active }) => {
  const { requests, hasMore } = active.list();
  exchange.json(200, { object: "list", data: requests.map(wireRequest), has_more: hasMore });
};

export const cancelRequest: RouteHandler = (exchange, { active }) => {
  const { request_id: id = "" } = exchange.parameters;
  if (!active.cancel(id)) {
    const message = `no inference request in progress has the id ${JSON.stringify(id.slice(0, 200))}; it may have ended: GET /v1/system/requests lists those in progress`;
    throw new ServerError("not_found", message, { param: "request_id" });
  }
  exchange.json(200, { id, object: "request", cancelled: true });
};

function wireRequest({ source, model, isStreamed, promptTokens, completionTokens }: ActiveRequest) {
  return {
    id: source.id,
    path: source.path,
    model,
    client: source.client,
    stream: isStreamed,
    state: promptTokens === null ? "queued" : "generating",
    received_at: Math.floor(source.receivedAt / 1000),
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
  } satisfies z.input<typeof activeRequestSchema>;
}
