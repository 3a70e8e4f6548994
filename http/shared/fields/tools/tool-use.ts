// Tool use of a request in any protocol: which tools may be called, and whether a call is required.
import type { ToolSpec, ToolUse } from "../../../../engines/generation.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import type { Conflict } from "../conflicts.ts";

/**
 * Tool choice of a request. `names`: tools that may be called; null: any tool. Mode `one`: exactly one call of the named tool.
 */
export interface ToolChoice {
  readonly mode: "none" | "auto" | "required" | "one";
  readonly names: readonly string[] | null;
}

export const anyTool: ToolChoice = { mode: "auto", names: null };

/**
 * Returns the tools that may be called; null if no tool may be called. Only these tools are in the prompt. Throws invalid_value
 * if a tool of the request has the same name as a server tool.
 */
export function toolUse(specs: readonly ToolSpec[], { mode, names }: ToolChoice, parallel: boolean): ToolUse | null {
  const twice = usedTwice(specs);
  if (twice !== undefined) {
    const message = `expected tools of different names, got "${twice}" twice: the server has a tool of this name`;
    throw new ServerError("invalid_value", message, { param: "tools" });
  }
  const usable = mode === "none" ? [] : specs.filter(({ name }) => names === null || names.includes(name));
  if (usable.length === 0) return null;
  return { specs: usable, required: mode !== "auto", parallel: parallel && mode !== "one" };
}

/** Yields a conflict if two tools have the same name. */
export function* toolConflicts(specs: readonly ToolSpec[]): Iterable<Conflict> {
  const twice = usedTwice(specs);
  if (twice !== undefined) yield ["tools", `expected tools of different names, got "${twice}" twice`];
}

/** Throws invalid_value if the tool choice does not fit the tools. `specs`: all offered tools, including server tools. */
export function checkChoice(specs: readonly ToolSpec[], choice: ToolChoice): void {
  for (const [param, problem] of choiceConflicts(specs, choice)) {
    throw new ServerError("invalid_value", `${param}: ${problem}`, { param });
  }
}

function* choiceConflicts(specs: readonly ToolSpec[], { mode, names }: ToolChoice): Iterable<Conflict> {
  if (mode === "none") return;
  const known = specs.map(({ name }) => name);
  const unknown = names?.find((name) => !known.includes(name));
  if (unknown !== undefined) {
    const there = known.length === 0 ? "no tools" : known.join(", ");
    yield ["tool_choice", `expected a tool of the request (${there}), got "${unknown}"`];
  } else if (mode === "required" && (names ?? known).length === 0) {
    yield ["tool_choice", "expected tools to choose from, as a call is required; got none"];
  }
}

function usedTwice(specs: readonly ToolSpec[]): string | undefined {
  const known = specs.map(({ name }) => name);
  return known.find((name, i) => known.indexOf(name) < i);
}

interface OtherFields {
  readonly grammar?: unknown;
  readonly ignore_eos?: boolean | null | undefined;
}

/** Yields the conflicts between tool calls and other request fields. */
export function* callConflicts(use: ToolUse | null, { grammar, ignore_eos }: OtherFields): Iterable<Conflict> {
  if (use !== null && grammar !== null && grammar !== undefined) {
    yield ["grammar", 'cannot be combined with tools, which are called in another form; send tool_choice "none"'];
  }
  if (use?.required && ignore_eos === true) {
    yield ["ignore_eos", "cannot be combined with a required call: the answer ends where the call ends"];
  }
}
