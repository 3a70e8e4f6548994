// OpenAPI description of the approval routes and of the route that lists the server's tools.
import { z } from "zod";
import { jsonAnswer, type Operation } from "../operation.ts";
import { approvalRequestSchema } from "../shared/agent/wire.ts";
import { decisionSchema, pendingQuery } from "./approvals-route.ts";
import { toolListSchema } from "./tools-route.ts";

const taken = z.strictObject({ status: z.enum(["resolved", "queued"]) }).meta({ id: "TakenApproval" });
const unknown = z.strictObject({ status: z.literal("not_found") }).meta({ id: "UnknownApproval" });

export const decideApprovalOperation: Operation = {
  id: "decideApproval",
  tag: "Agents",
  summary: "Answer a call that waits for approval",
  description:
    "`resolved`: the call goes on; `queued`: the run does not wait yet, and takes the answer when it does. A call without an answer is denied after five minutes.",
  path: z.strictObject({
    approval_id: z.string().meta({ description: "Id of the event agentic_tool_approval_required." }),
  }),
  body: decisionSchema,
  answers: {
    200: [{ contentType: "application/json", schema: taken, description: "The answer is taken" }],
    404: [{ contentType: "application/json", schema: unknown, description: "No call with this id waits" }],
  },
  errors: ["unsupported"],
};

export const listApprovalsOperation: Operation = {
  id: "listApprovals",
  tag: "Agents",
  summary: "List the calls of a session that wait for approval",
  query: pendingQuery,
  answers: {
    200: [
      {
        contentType: "application/json",
        schema: z.strictObject({ object: z.literal("list"), data: z.array(approvalRequestSchema) }),
        description: "The waiting calls, the oldest first",
      },
    ],
  },
  errors: ["unsupported"],
};

export const listToolsOperation: Operation = {
  id: "listTools",
  tag: "Agents",
  summary: "List the tools of the server",
  description:
    "Built-in tools of the enabled features, then those of connected MCP servers. Empty without an agent loop.",
  answers: jsonAnswer(toolListSchema, "The tools"),
  errors: [],
};
