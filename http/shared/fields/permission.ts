// Owns the field that says whether tools which the server runs may be. There are none yet; but a request whose client could
// not be asked is wrong all the same, and is told so.
import { z } from "zod";
import type { Conflict } from "./conflicts.ts";

export const permissionField = z.enum(["auto", "ask", "deny"]).nullish().meta({
  description: "Whether tools that the server runs may be; there are none yet, so auto and deny come to the same",
});

const ASK_NEEDS_STREAM =
  'agent_permission "ask" needs stream=true: approvals are asked for in the stream and answered at POST /v1/agent/approvals/{approval_id}';

export function* permissionConflicts(
  permission: z.output<typeof permissionField>,
  isStreamed: boolean | null | undefined,
): Iterable<Conflict> {
  if (permission === "ask" && isStreamed !== true) yield ["agent_permission", ASK_NEEDS_STREAM];
}
