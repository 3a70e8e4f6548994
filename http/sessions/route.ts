// Sessions routes: export, import and delete a session.
import type { Files } from "../../actors/api/agent/files.ts";
import { importedSession, serializedSession } from "../../actors/api/agent/serialized-session.ts";
import type { Sessions } from "../../actors/api/agent/sessions.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { Context, RouteHandler } from "../context.ts";
import { type Exchange, jsonHeaders } from "../exchange.ts";
import { clientOf } from "../server/client.ts";
import { sessionId } from "../shared/agent/request-fields.ts";
import { jsonPieces } from "../shared/answer/json-pieces.ts";
import { sendPieces } from "../shared/answer/pieces.ts";
import { readRequest } from "../shared/read-request.ts";
import { sessionTranslator } from "./translator.ts";

export const exportSession: RouteHandler = async (exchange, context) => {
  const { sessions, files } = storesOf(context);
  const id = exchange.parameters.session_id ?? "";
  const session = await sessions.find(id);
  if (session === null) {
    const message = `no session has the id ${JSON.stringify(id.slice(0, 200))}; a session is kept for 30 minutes after its last use`;
    throw new ServerError("session_not_found", message);
  }
  await sendPieces(exchange, jsonHeaders, jsonPieces(await serializedSession(session, files)), context.config);
};

export const importSession: RouteHandler = async (exchange, context) => {
  const { sessions, files } = storesOf(context);
  const id = checkedId(exchange);
  const { session: body } = await readRequest(exchange, context, sessionTranslator);
  const client = clientOf(exchange.request);
  const session = await importedSession(id, client, body, files);
  await sessions.put({ client, session });
  exchange.json(200, {});
};

export const deleteSession: RouteHandler = async (exchange, context) => {
  const { sessions } = storesOf(context);
  const id = exchange.parameters.session_id ?? "";
  // Runs of the session are ended first, because they store it. An agent run on a replica that cannot be reached now may store it
  // again.
  await context.agents?.forget(id);
  if (context.replicas !== null) await context.replicas.ask(null, "forgetSession", { session: id }, false);
  exchange.json(200, { id, object: "session", deleted: await sessions.delete(id) });
};

function checkedId(exchange: Exchange): string {
  const id = exchange.parameters.session_id ?? "";
  const result = sessionId.safeParse(id);
  if (result.success) return id;
  throw new ServerError("invalid_value", `session_id: ${result.error.issues[0]?.message ?? "expected an id"}`, {
    param: "session_id",
  });
}

export function storesOf({ sessions, files }: Context): { readonly sessions: Sessions; readonly files: Files } {
  if (sessions !== null && files !== null) return { sessions, files };
  throw new ServerError("unsupported", "this server keeps no sessions");
}
