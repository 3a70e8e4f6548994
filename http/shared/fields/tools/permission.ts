// Request field `agent_permission`: whether tools may run on the server. The value "ask" is valid only for streamed responses,
// because the server asks for approvals in the stream.
import { z } from "zod";
import type { Conflict } from "../conflicts.ts";

export const permissionField = z.enum(["auto", "ask", "deny"]).nullish().meta({
  description:
    "Permission for tools that the server runs: run them, ask for approval in the stream, or refuse them. A request can only tighten the server's setting.",
});

const ASK_NEEDS_STREAM =
  'agent_permission "ask" needs stream=true: approvals are asked for in the stream and answered at POST /v1/agent/approvals/{approval_id}';

export function* permissionConflicts(
  permission: z.output<typeof permissionField>,
  isStreamed: boolean | null | undefined,
): Iterable<Conflict> {
  if (permission === "ask" && isStreamed !== true) yield ["agent_permission", ASK_NEEDS_STREAM];
}
