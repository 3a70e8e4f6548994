// Owns what the tools of a request come to, whatever protocol named them: which may be called, and whether one must be.
import type { ToolSpec, ToolUse } from "../engines/chat.ts";

/** Which tools the client wants called; `names` null = any of them. */
export interface ToolChoice {
  readonly mode: "none" | "auto" | "required";
  readonly names: readonly string[] | null;
}

export const anyTool: ToolChoice = { mode: "auto", names: null };

/** null where nothing may be called. The model is told of no other tools than those that may be. */
export function toolUse(specs: readonly ToolSpec[], { mode, names }: ToolChoice, parallel: boolean): ToolUse | null {
  const usable = mode === "none" ? [] : specs.filter(({ name }) => names === null || names.includes(name));
  return usable.length === 0 ? null : { specs: usable, required: mode === "required", parallel };
}

/** What contradicts itself in tools and the choice of them, each as a field and what is wrong with it. */
export function* toolConflicts(
  specs: readonly ToolSpec[],
  { mode, names }: ToolChoice,
): Iterable<readonly [field: string, message: string]> {
  const known = specs.map(({ name }) => name);
  const twice = known.find((name, i) => known.indexOf(name) < i);
  if (twice !== undefined) yield ["tools", `expected tools of different names, got "${twice}" twice`];
  if (mode === "none") return;
  const unknown = names?.find((name) => !known.includes(name));
  if (unknown !== undefined) {
    const there = known.length === 0 ? "no tools" : known.join(", ");
    yield ["tool_choice", `expected a tool of the request (${there}), got "${unknown}"`];
  } else if (mode === "required" && (names ?? known).length === 0) {
    yield ["tool_choice", "expected tools to choose from, as a call is required; got none"];
  }
}
