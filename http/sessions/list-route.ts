// GET /v1/sessions: the sessions of all clients, without their messages.
import { z } from "zod";
import type { ListedSession } from "../../actors/api/agent/sessions.ts";
import type { RouteHandler } from "../context.ts";
import { pageFields, pageOf, readPageQuery, unknownAfter } from "../shared/fields/page-query.ts";
import { storesOf } from "./route.ts";

const count = z.int().min(0);

const listedSessionSchema = z
  .strictObject({
    id: z.string(),
    object: z.literal("session"),
    turns: count.meta({ description: "Number of requests." }),
    messages: count.meta({ description: "Number of messages of the conversation as the client sees it." }),
    files: count.meta({ description: "Number of files." }),
    last_used_at: count.meta({ description: "Unix time in seconds." }),
    bytes: count.meta({ description: "Size of the stored messages, images and videos, without the files." }),
  })
  .meta({ id: "SessionSummary" });

export const sessionListSchema = z.strictObject({
  object: z.literal("list"),
  data: z.array(listedSessionSchema),
  ...pageFields,
});

export const listSessions: RouteHandler = async (exchange, context) => {
  const { sessions } = storesOf(context);
  const request = readPageQuery(exchange.request.query);
  const page = await sessions.list(request);
  if (page === null) throw unknownAfter("session", request);
  exchange.json(200, pageOf(page.sessions.map(wireSession), page.hasMore));
};

function wireSession({ id, turns, messageCount, fileCount, usedAt, bytes }: ListedSession) {
  const last_used_at = Math.floor(usedAt / 1000);
  return { id, object: "session", turns, messages: messageCount, files: fileCount, last_used_at, bytes };
}
