// Progress event: the event of a run that reports a call of a server tool.
import type { AgentEvent, ToolType } from "../../../actors/api/agent/agents.ts";
import { serverToolNames } from "../fields/tools/tool-fields.ts";
import { webToolNames } from "../fields/tools/web-search.ts";

export type ProgressEvent = Extract<AgentEvent, { readonly type: "tool_progress" }>;

/** Built-in tools for whose calls the protocols have forms of their own. */
export type BuiltInKind = "code" | "shell" | "search" | "page";

const kinds: ReadonlyMap<string, { readonly kind: BuiltInKind; readonly type: ToolType }> = new Map([
  [serverToolNames.code_interpreter, { kind: "code", type: "code_execution" }],
  [serverToolNames.shell, { kind: "shell", type: "shell" }],
  [webToolNames.search, { kind: "search", type: "web_search" }],
  [webToolNames.page, { kind: "page", type: "web_search" }],
]);

/** Returns the kind of the called tool; null: it is another tool. */
export function builtInKind({ call, toolType }: Pick<ProgressEvent, "call" | "toolType">): BuiltInKind | null {
  const found = kinds.get(call.name);
  // A function of the client may have the name of a built-in tool that the run does not offer, so the type counts too.
  return found?.type === toolType ? found.kind : null;
}

/** Whether the call of a `complete` event has not succeeded: it has failed, was ended or was denied. */
export function hasFailed({ data: { status } }: Pick<ProgressEvent, "data">): boolean {
  return status !== undefined && status !== "success";
}
