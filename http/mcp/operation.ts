// OpenAPI description of POST /mcp.
import { z } from "zod";
import type { Operation } from "../operation.ts";

const message = z.looseObject({
  jsonrpc: z.literal("2.0"),
  id: z.union([z.string(), z.int()]).optional().meta({ description: "Absent in a notification" }),
  method: z.string().optional(),
  params: z.looseObject({}).optional(),
  result: z.looseObject({}).optional(),
  error: z.looseObject({ code: z.int(), message: z.string() }).optional(),
});

export const mcpOperation: Operation = {
  id: "mcp",
  tag: "MCP",
  summary: "The models as an MCP server",
  description:
    "JSON-RPC 2.0 over streamable HTTP, on the port `mcp_port` and only if that is set. `initialize` begins a session, " +
    "whose id is in the header `mcp-session-id`; requests without a session are answered, too. With state_url, a session may continue on any replica. Tools: `chat`, `embed`.",
  body: z.union([message, z.array(message).min(1)]).meta({ description: "A message, or a batch of them" }),
  answers: {
    200: [
      { contentType: "application/json", schema: z.union([message, z.array(message)]), description: "The answer" },
      {
        contentType: "text/event-stream",
        schema: message,
        description: "Progress, if it was asked for, and the answer, one message an event",
      },
    ],
    202: [{ contentType: "text/plain", description: "Empty: the message was a notification or a response" }],
  },
  portSetting: "mcp_port",
  errors: ["forbidden", "not_found", "queue_full", "storage_unavailable"],
};
