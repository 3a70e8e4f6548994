// OpenAPI description of the sessions routes.
import { z } from "zod";
import { serializedSessionSchema } from "../../actors/api/agent/serialized-session.ts";
import { jsonAnswer, type Operation } from "../operation.ts";
import { pageQuery } from "../shared/fields/page-query.ts";
import { sessionListSchema } from "./list-route.ts";

const path = z.strictObject({ session_id: z.string().meta({ description: "Session id." }) });

export const listSessionsOperation: Operation = {
  id: "listSessions",
  tag: "Agents",
  summary: "List the sessions of all clients, the most recently used first",
  query: pageQuery,
  answers: jsonAnswer(sessionListSchema, "A page of sessions"),
  errors: ["unsupported", "storage_unavailable", "peer_gone"],
};

export const exportSessionOperation: Operation = {
  id: "exportSession",
  tag: "Agents",
  summary: "Export a session",
  description: "The body can be imported on another server. Variables of Python are not part of it.",
  path,
  answers: jsonAnswer(serializedSessionSchema, "The session"),
  errors: ["session_not_found", "unsupported", "storage_unavailable", "peer_gone"],
};

export const importSessionOperation: Operation = {
  id: "importSession",
  tag: "Agents",
  summary: "Import a session",
  description: "Replaces a session with the same id. Further requests with this session_id continue the conversation.",
  path,
  body: serializedSessionSchema,
  answers: jsonAnswer(z.strictObject({}), "The session is stored"),
  errors: ["unsupported", "storage_unavailable", "peer_gone", "queue_full", "timeout", "cancelled"],
};

export const deleteSessionOperation: Operation = {
  id: "deleteSession",
  tag: "Agents",
  summary: "Delete a session",
  description:
    "Ends the session's processes and deletes its work folder. The status is 200 whether or not the session existed.",
  path,
  answers: jsonAnswer(
    z.strictObject({ id: z.string(), object: z.literal("session"), deleted: z.boolean() }),
    "The session does not exist any more; `deleted`: whether it existed",
  ),
  errors: ["unsupported", "storage_unavailable", "peer_gone"],
};
