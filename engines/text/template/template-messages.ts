// Template messages: converts messages and tools to the form that a chat template expects, according to its
// capabilities. No side effects.
import { createHash } from "node:crypto";
import type { ChatMessage, ToolCall, ToolSpec } from "../../generation.ts";
import type { CallIds, TemplateCapabilities } from "./template-capabilities.ts";

export type TemplateContent = string | null | readonly { readonly type: "text"; readonly text: string }[];

export interface TemplateCall {
  readonly id: string;
  readonly type: "function";
  readonly function: { readonly name: string; readonly arguments: unknown };
}

export interface TemplateMessage {
  readonly role: string;
  readonly content: TemplateContent;
  readonly name?: string;
  readonly tool_calls?: readonly TemplateCall[];
  readonly tool_call_id?: string;
  readonly reasoning_content?: string;
  /** The name that gpt-oss uses for `reasoning_content`. */
  readonly thinking?: string;
}

export interface TemplateTool {
  readonly type: "function";
  readonly function: {
    readonly name: string;
    readonly description: string;
    readonly parameters: Readonly<Record<string, unknown>>;
  };
}

/** A call with parsed arguments. Arguments that are not a JSON object stay text. */
export interface ParsedCall extends Omit<ToolCall, "arguments"> {
  readonly arguments: unknown;
  /** The arguments exactly as the model wrote them. */
  readonly text: string;
}

/** A message whose calls are parsed. */
export interface ParsedMessage extends Omit<ChatMessage, "toolCalls"> {
  readonly toolCalls?: readonly ParsedCall[];
}

export function templateTool({ name, description, parameters }: ToolSpec): TemplateTool {
  const isObject = typeof parameters === "object" && parameters !== null && !Array.isArray(parameters);
  const schema = isObject ? (parameters as Readonly<Record<string, unknown>>) : { type: "object", properties: {} };
  return { type: "function", function: { name, description: description ?? "", parameters: schema } };
}

/**
 * Returns the messages with the name of the called tool added to each tool result. Works also for
 * templates that do not show calls.
 */
export function withNames(messages: readonly ParsedMessage[]): readonly ParsedMessage[] {
  const names = new Map<string, string>();
  return messages.map((message) => {
    for (const { id, name } of message.toolCalls ?? []) names.set(id, name);
    const name = message.toolCallId === undefined ? undefined : names.get(message.toolCallId);
    return name === undefined || message.name !== undefined ? message : { ...message, name };
  });
}

/** Returns the messages in the form that the template expects. One message may become two. */
export function templateMessages(
  messages: readonly ParsedMessage[],
  capabilities: TemplateCapabilities,
): TemplateMessage[] {
  const known = new Map<string, KnownCall>();
  return messages.flatMap((message) => {
    const toolCalls = message.toolCalls?.map((call) => withId(call, capabilities.calls.ids, known));
    return shaped(answering({ ...message, ...(toolCalls && { toolCalls }) }, known), capabilities);
  });
}

/** Id and name of a call in the prompt. Maps of known calls are keyed by the id that the client uses. */
type KnownCall = Pick<ParsedCall, "id" | "name">;

function withId(call: ParsedCall, ids: CallIds, known: Map<string, KnownCall>): ParsedCall {
  const id = idOf(call, ids, known.size);
  known.set(call.id, { id, name: call.name });
  return { ...call, id };
}

const shortId = /^[A-Za-z0-9]{9}$/;

function idOf({ id, name }: ParsedCall, ids: CallIds, count: number): string {
  if (ids === "naming") return `functions.${name}:${count}`;
  if (ids === "any" || shortId.test(id)) return id;
  return createHash("sha256").update(id).digest("hex").slice(0, 9);
}

/** Returns a result message with the id that the template requires and the name of its call. */
function answering(message: ParsedMessage, known: ReadonlyMap<string, KnownCall>): ParsedMessage {
  const call = message.toolCallId === undefined ? undefined : known.get(message.toolCallId);
  return call === undefined ? message : { ...message, toolCallId: call.id, name: message.name ?? call.name };
}

function shaped(message: ParsedMessage, capabilities: TemplateCapabilities): TemplateMessage[] {
  const { toolCalls = [], reasoning = "", content } = message;
  if (toolCalls.length === 0) return [plain(message, content, reasoning, capabilities)];
  const { besideContent, withThoughts } = capabilities.calls;
  if (content === "") return [calling(message, "", reasoning, capabilities)];
  if (reasoning !== "" && !withThoughts) return [calling(message, "", `${reasoning}\n\n${content}`, capabilities)];
  if (besideContent === "together") return [calling(message, content, reasoning, capabilities)];
  if (besideContent === "lost") return [calling(message, "", reasoning, capabilities)];
  // The reasoning stays with the call, because models should see the reasoning that led to the call. Templates mostly
  // omit reasoning before plain text.
  return [plain(message, content, "", capabilities), calling(message, "", reasoning, capabilities)];
}

function plain(
  message: ParsedMessage,
  content: string,
  reasoning: string,
  capabilities: TemplateCapabilities,
): TemplateMessage {
  const { role, name, toolCallId } = message;
  return {
    role,
    content: capabilities.wantsParts ? [{ type: "text", text: content }] : content,
    ...(name === undefined ? {} : { name }),
    ...(toolCallId === undefined ? {} : { tool_call_id: toolCallId }),
    ...(reasoning === "" ? {} : { reasoning_content: reasoning, thinking: reasoning }),
  };
}

function calling(
  message: ParsedMessage,
  content: string,
  reasoning: string,
  capabilities: TemplateCapabilities,
): TemplateMessage {
  const { textArguments, nullContent } = capabilities.calls;
  const base = plain(message, content, reasoning, capabilities);
  const calls = (message.toolCalls ?? []).map(
    (call): TemplateCall => ({
      id: call.id,
      type: "function",
      function: { name: call.name, arguments: textArguments ? call.text : call.arguments },
    }),
  );
  return { ...base, content: content === "" && nullContent ? null : base.content, tool_calls: calls };
}

/**
 * Splits messages so that each has one call, followed by its results. Used for templates that accept only one call per
 * message. Results that match no call of the message come last.
 */
export function oneCallEach(messages: readonly ParsedMessage[]): ParsedMessage[] {
  const apart: ParsedMessage[] = [];
  for (let at = 0; at < messages.length; at++) {
    const message = messages[at] as ParsedMessage;
    const calls = message.toolCalls ?? [];
    if (calls.length < 2) {
      apart.push(message);
      continue;
    }
    const results: ParsedMessage[] = [];
    for (; messages[at + 1]?.role === "tool"; at++) results.push(messages[at + 1] as ParsedMessage);
    apart.push(...callsApart(message, calls, results));
  }
  return apart;
}

function callsApart(
  message: ParsedMessage,
  calls: readonly ParsedCall[],
  results: readonly ParsedMessage[],
): ParsedMessage[] {
  const byCall = new Map<string | undefined, ParsedMessage[]>(calls.map(({ id }) => [id, []]));
  const others: ParsedMessage[] = [];
  for (const result of results) (byCall.get(result.toolCallId) ?? others).push(result);
  const { role } = message;
  const apart = calls.flatMap((call, i) => {
    const caller = i === 0 ? { ...message, toolCalls: [call] } : { role, content: "", toolCalls: [call] };
    return [caller, ...(byCall.get(call.id)?.splice(0) ?? [])];
  });
  return [...apart, ...others];
}
