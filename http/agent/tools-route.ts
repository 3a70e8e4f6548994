// GET /v1/agent/tools: lists the server's tools that a request may currently offer to a model.
import { z } from "zod";
import type { RouteHandler } from "../context.ts";
import { groupNames, specsOf } from "../shared/agent/request-fields.ts";
import { offeredBy } from "../shared/agent/start-run.ts";

const toolSchema = z
  .strictObject({
    object: z.literal("agent.tool"),
    name: z.string(),
    description: z.string(),
    group: z
      .enum(groupNames)
      .nullable()
      .meta({ description: "Feature that the tool belongs to; null: it is no built-in tool." }),
    server_label: z
      .string()
      .nullable()
      .meta({ description: "Label of the tool's MCP server in requests; null: the tool belongs to none." }),
  })
  .meta({ id: "AgentTool" });

export const toolListSchema = z
  .strictObject({ object: z.literal("list"), data: z.array(toolSchema) })
  .meta({ id: "AgentToolList" });

type WireTool = z.output<typeof toolSchema>;

export const listTools: RouteHandler = (exchange, context) => {
  const { groups, serverTools } = offeredBy(context) ?? { groups: [], serverTools: [] };
  const builtIn = groups.flatMap((group) => specsOf([group]).map((spec) => ({ spec, group, server: null })));
  const others = serverTools.map((tool) => ({ ...tool, group: null }));
  const data = [...builtIn, ...others].map(
    ({ spec: { name, description }, group, server }): WireTool => ({
      object: "agent.tool",
      name,
      description: description ?? "",
      group,
      server_label: server,
    }),
  );
  exchange.json(200, { object: "list", data });
};
