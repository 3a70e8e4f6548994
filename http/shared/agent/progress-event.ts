// Progress event: event of an agent run that reports a call of a server tool.
import type { AgentEvent, ToolType } from "../../../actors/api/agent/agents.ts";
import { serverToolNames } from "../fields/tools/tool-fields.ts";
import { webToolNames } from "../fields/tools/web-search.ts";

export type ProgressEvent = Extract<AgentEvent, { readonly type: "tool_progress" }>;

/** Built-in tools whose calls have a format of their own in the protocols. */
export type BuiltInKind = "code" | "shell" | "search" | "page";

const kinds: ReadonlyMap<string, { readonly kind: BuiltInKind; readonly type: ToolType }> = new Map([
  [serverToolNames.code_interpreter, { kind: "code", type: "code_execution" }],
  [serverToolNames.shell, { kind: "shell", type: "shell" }],
  [webToolNames.search, { kind: "search", type: "web_search" }],
  [webToolNames.page, { kind: "page", type: "web_search" }],
]);

/** Returns which built-in tool is called; null if it is none of them. */
export function builtInKind({ call, toolType }: Pick<ProgressEvent, "call" | "toolType">): BuiltInKind | null {
  const found = kinds.get(call.name);
  // A client function may have the name of a built-in tool that the run does not offer, so the tool type is checked too.
  return found?.type === toolType ? found.kind : null;
}

/** Returns whether the call of a `complete` event did not succeed, because it failed, was aborted or was denied. */
export function hasFailed({ data: { status } }: Pick<ProgressEvent, "data">): boolean {
  return status !== undefined && status !== "success";
}
