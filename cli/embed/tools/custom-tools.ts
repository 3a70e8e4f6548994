// Custom tools: functions of the program that embeds the server, offered to models as server tools. This file checks their
// definitions.
import type { ServerTool, ToolSource } from "../../../actors/api/agent/server-tools.ts";
import { builtInPrefix } from "../../../actors/tools/schemas.ts";
import type { Log } from "../../../http/observe/log.ts";
import { ServerError, toErrorRecord } from "../../../runtime/errors.ts";
import { type CheckedSchema, checkedSchema } from "./checked-schema.ts";
import { defaultTimeoutMs, runTool } from "./run-tool.ts";
import type { Tool } from "./tool.ts";

/** Maximum delay of a Node.js timer in ms. */
const maxTimeoutMs = 2 ** 31 - 1;

/**
 * Returns the tools as a source of server tools. Throws config_invalid if a definition is invalid, or if two tools have the
 * same name.
 */
export function customTools(tools: readonly Tool[], log: Pick<Log, "warn">): ToolSource {
  if (!Array.isArray(tools)) throw invalid(`tools expects an array; got ${JSON.stringify(tools)}`);
  const made = tools.map((tool, index) => serverTool(tool, index, log));
  const names = made.map(({ spec }) => spec.name);
  const twice = names.find((name, index) => names.indexOf(name) < index);
  if (twice !== undefined) throw invalid(`tools expects tools of different names; got "${twice}" twice`);
  return { tools: () => made };
}

function serverTool(tool: Tool, index: number, log: Pick<Log, "warn">): ServerTool {
  const schema = checkedDefinition(tool, `tools[${index}]`);
  const { name, description } = tool;
  return {
    spec: { name, description, parameters: schema.parameters, strict: false },
    about: { source: "user", kind: "custom", label: name },
    run: (call) => runTool(tool, schema, call, log),
  };
}

/**
 * Checks the definition of a tool and returns its schema. Checks the types too, because the embedding program may not use
 * TypeScript. `at`: position of the tool in the settings, for messages.
 */
function checkedDefinition(tool: Tool, at: string): CheckedSchema {
  if (typeof tool !== "object" || tool === null) throw invalid(`${at} expects a tool; got ${JSON.stringify(tool)}`);
  const { name, description, schema, timeoutMs = defaultTimeoutMs, run } = tool;
  if (typeof name !== "string" || !/^[a-zA-Z0-9_-]{1,64}$/.test(name)) {
    throw invalid(`${at}.name expects 1 to 64 letters, digits, "_" and "-"; got ${JSON.stringify(name)}`);
  }
  if (name.startsWith(builtInPrefix)) {
    throw invalid(
      `${at}.name expects a name that does not begin with "${builtInPrefix}", as troupe's own do; got "${name}"`,
    );
  }
  if (typeof description !== "string") throw invalid(`${at}.description expects a text; got ${typeof description}`);
  if (typeof run !== "function") throw invalid(`${at}.run expects a function; got ${typeof run}`);
  if (!(timeoutMs >= 1 && timeoutMs <= maxTimeoutMs)) {
    throw invalid(`${at}.timeoutMs expects a number from 1 to ${maxTimeoutMs}; got ${timeoutMs}`);
  }
  try {
    return checkedSchema(schema);
  } catch (error) {
    throw invalid(`${at}.schema of the tool "${name}": ${toErrorRecord(error).message}`);
  }
}

function invalid(message: string): ServerError {
  return new ServerError("config_invalid", message);
}
