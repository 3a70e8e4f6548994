// Client text: finds all text from the client in messages and tools, at any depth. This text must not be read as
// control tokens. This file also limits the depth of JSON values before other code traverses them. Called by
// chat-template.ts. No side effects.
import { ServerError } from "../../../runtime/errors.ts";
import type { ChatMessage, ToolCall, ToolSpec } from "../../generation.ts";
import type { ParsedCall, ParsedMessage } from "./template-messages.ts";

/** Maximum depth of a tool's parameters. The same maximum applies to a schema that is compiled to a grammar. */
const maxDepth = 100;

type Guard = (text: string) => string;

// Roles that stay unchanged, because templates compose control tokens from them ("<|" + role + "|>"). Any other role is
// user text.
const knownRoles = new Set(["system", "developer", "user", "assistant", "tool", "function"]);

/**
 * Words of JSON schemas that templates compare strings with. No marker is inserted into these words, because it would
 * break the comparison. (Markers are characters that keep user text from being read as control tokens; see
 * user-text.ts.) No control token has one of these words as its name.
 */
const schemaWords = new Set(
  (
    "type object array string number integer boolean null properties required items enum const description title " +
    "default additionalProperties anyOf oneOf allOf not format nullable $ref $defs definitions prefixItems pattern " +
    "minimum maximum minLength maxLength minItems maxItems name parameters function arguments"
  ).split(" "),
);

export function parsedMessage(message: ChatMessage): ParsedMessage {
  const { toolCalls, ...rest } = message;
  return toolCalls === undefined ? rest : { ...rest, toolCalls: toolCalls.map(parsedCall) };
}

function parsedCall(call: ToolCall): ParsedCall {
  return { ...call, arguments: parsedArguments(call.arguments), text: call.arguments };
}

/**
 * Returns the parsed object, or an empty object for an empty text. Returns the text itself if it is not a JSON object,
 * or if the object is nested too deeply.
 */
function parsedArguments(text: string): unknown {
  if (text.trim() === "") return {};
  try {
    const value: unknown = JSON.parse(text);
    const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
    return isObject && isShallow(value) ? value : text;
  } catch {
    return text;
  }
}

/** Checks the depth of tool parameters. Throws ServerError `invalid_value` if they are nested too deeply. */
export function checkTools(tools: readonly ToolSpec[]): void {
  for (const { name, parameters } of tools) {
    if (isShallow(parameters)) continue;
    const message = `the parameters of tool ${JSON.stringify(name)} are nested more than ${maxDepth} deep; make them flatter`;
    throw new ServerError("invalid_value", message, { param: "tools" });
  }
}

function isShallow(value: unknown): boolean {
  let level: readonly unknown[] = [value];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > maxDepth) return false;
    level = level.flatMap((inner) => (typeof inner === "object" && inner !== null ? Object.values(inner) : []));
  }
  return true;
}

/**
 * Yields all text of the client in messages and tools, partly as JSON text. Used only to find which characters occur
 * in it.
 */
export function* clientTexts(messages: readonly ParsedMessage[], tools: readonly ToolSpec[]): Iterable<string> {
  for (const { role, content, name, reasoning, toolCallId, toolCalls } of messages) {
    yield role;
    yield content;
    for (const text of [name, reasoning, toolCallId]) if (text !== undefined) yield text;
    if (toolCalls !== undefined) yield JSON.stringify(toolCalls);
  }
  if (tools.length > 0) yield JSON.stringify(tools);
}

/**
 * Returns the client's template variables, with markers in their strings, so that no string is read as a control token
 * (see user-text.ts). Strings in `words` stay unchanged, because the template compares variables with them.
 */
export function guardVariables(
  variables: Readonly<Record<string, unknown>>,
  guard: Guard,
  words: ReadonlySet<string>,
): Readonly<Record<string, unknown>> {
  const guarded = (text: string) => (words.has(text) ? text : guard(text));
  return Object.fromEntries(Object.entries(variables).map(([name, value]) => [name, guardValue(value, guarded)]));
}

/**
 * Returns the string literals of a template's source that are plain words. Client text that equals such a word gets no
 * marker (see guardVariables()). Returns no words if a control token's name is a plain word, because several words
 * without markers could then form this name together.
 */
export function comparedWords(source: string, controlNames: readonly string[]): ReadonlySet<string> {
  if (controlNames.some((name) => /^[\w-]+$/.test(name))) return new Set();
  return new Set([...source.matchAll(/(["'])([A-Za-z][\w-]*)\1/g)].map(([, , word]) => word as string));
}

export function guardMessage(message: ParsedMessage, guard: Guard): ParsedMessage {
  const { role, content, name, reasoning, toolCallId, toolCalls } = message;
  return {
    role: knownRoles.has(role) ? role : guard(role),
    content: guard(content),
    ...(name === undefined ? {} : { name: guard(name) }),
    ...(reasoning === undefined ? {} : { reasoning: guard(reasoning) }),
    ...(toolCallId === undefined ? {} : { toolCallId: guard(toolCallId) }),
    ...(toolCalls === undefined ? {} : { toolCalls: toolCalls.map((call) => guardCall(call, guard)) }),
  };
}

function guardCall(call: ParsedCall, guard: Guard): ParsedCall {
  return {
    id: guard(call.id),
    name: guard(call.name),
    arguments: guardValue(call.arguments, guard),
    text: guard(call.text),
  };
}

export function guardTool(tool: ToolSpec, guard: Guard): ToolSpec {
  const { name, description, parameters } = tool;
  return {
    ...tool,
    name: guard(name),
    description: description === null ? null : guard(description),
    parameters: guardValue(parameters, guard),
  };
}

function guardValue(value: unknown, guard: Guard): unknown {
  if (typeof value === "string") return schemaWords.has(value) ? value : guard(value);
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map((inner) => guardValue(inner, guard));
  const members = Object.entries(value).map(([key, inner]) => [
    schemaWords.has(key) ? key : guard(key),
    guardValue(inner, guard),
  ]);
  return Object.fromEntries(members);
}
