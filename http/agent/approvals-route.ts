// Approval routes: approve or deny a tool call that waits for approval, and list the waiting calls of a session.
import { z } from "zod";
import type { Agents } from "../../actors/api/agent/agents.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { Context, RouteHandler } from "../context.ts";
import { readJson } from "../json.ts";
import { sessionId } from "../shared/agent/request-fields.ts";
import { isBounded } from "../shared/fields/bounded.ts";
import { readQuery } from "../shared/read-query.ts";
import { decide, pending } from "./replicas.ts";

const MAX_MESSAGE_LENGTH = 65_536;

export const decisionSchema = z
  .strictObject({
    decision: z.enum(["approve", "deny"]),
    message: z
      .string()
      .max(MAX_MESSAGE_LENGTH)
      .nullish()
      .meta({ description: "With deny: the result that the model gets." }),
    remember_for_session: z
      .boolean()
      .nullish()
      .meta({ description: "With approve: approve all later calls of the session too.", default: false }),
    content: z
      .record(z.string(), z.union([z.string(), z.number(), z.boolean(), z.array(z.string())]))
      .nullish()
      .meta({ description: "With approve: the data that the tool asks for, as its `requested_schema` describes it." }),
    arguments: z
      .record(z.string(), z.unknown())
      .refine(isBounded, "is too large or too deeply nested")
      .nullish()
      .meta({ description: "With approve: arguments in place of the model's. The model is told of them." }),
  })
  .superRefine(({ decision, message, remember_for_session, content, arguments: edited }, context) => {
    if (decision === "approve" && typeof message === "string") {
      context.addIssue({ code: "custom", path: ["message"], message: "is for decision deny" });
    }
    if (decision === "deny" && remember_for_session === true) {
      context.addIssue({ code: "custom", path: ["remember_for_session"], message: "is for decision approve" });
    }
    if (decision === "deny" && content != null) {
      context.addIssue({ code: "custom", path: ["content"], message: "is for decision approve" });
    }
    if (decision === "deny" && edited != null) {
      context.addIssue({ code: "custom", path: ["arguments"], message: "is for decision approve" });
    }
  });

export const pendingQuery = z.object({ session_id: sessionId.meta({ description: "Session of the waiting calls." }) });

export const decideApproval: RouteHandler = async (exchange, context) => {
  const agents = agentsOf(context);
  const sent = readJson(exchange.request, decisionSchema, context.log);
  const { decision, message, remember_for_session, content, arguments: edited } = sent;
  const id = exchange.parameters.approval_id ?? "";
  const given = {
    decision,
    message: message ?? null,
    rememberForSession: remember_for_session ?? false,
    content: content ?? null,
    arguments: edited == null ? null : JSON.stringify(edited),
  };
  const status = await decide(agents, context.replicas, id, given);
  exchange.json(status === "not_found" ? 404 : 200, { status });
};

export const listApprovals: RouteHandler = async (exchange, context) => {
  const { session_id } = readQuery(exchange.request.query, pendingQuery);
  exchange.json(200, { object: "list", data: await pending(agentsOf(context), context.replicas, session_id) });
};

function agentsOf({ agents }: Context): Agents {
  if (agents !== null) return agents;
  throw new ServerError("unsupported", "this server runs no tools");
}
