// Text dialect: OpenAI's chat completions, for upstreams that return no token ids. This module writes request bodies and reads the events
// of response streams. The upstream itself applies chat templates, tool calls and structured output. Settings that its API lacks are
// refused.
import { ServerError } from "../../runtime/errors.ts";
import type { ChatMessage, FinishReason, GenerateEvent, GenerateRequest, RequestContent } from "../generation.ts";
import { errorText, garbage, list, record } from "./json-shape.ts";
import { UpstreamFailure } from "./upstream.ts";

export const chatPath = "/v1/chat/completions";

/** Token counts of a response, as the upstream reports them; 0 = not reported. */
export interface ChatUsage {
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  readonly reasoningTokens: number;
}

/** Returns the JSON body of a request. Throws `unsupported` naming the field if the upstream has no equivalent for it. */
export function chatBody(model: string, request: GenerateRequest, content: RequestContent): string {
  const { prompt, tools } = content;
  if (prompt.kind !== "chat") throw unsupported(request.fields.prompt, "text and token prompts: send a chat");
  checkSupported(request, prompt.continuesLast === true);
  const { enableThinking, reasoningEffort, variables } = prompt.templateArguments;
  // An effort also switches thinking on or off, so the upstream needs only the effort.
  const isToldByEffort = reasoningEffort !== undefined && enableThinking === (reasoningEffort !== "off");
  if (enableThinking !== undefined && !isToldByEffort) throw unsupported("enable_thinking", "it");
  if (variables !== undefined && Object.keys(variables).length > 0) throw unsupported("chat_template_kwargs", "them");
  const { temperature, topP, presencePenalty, frequencyPenalty, seed } = request.sampling;
  return JSON.stringify({
    model,
    messages: prompt.messages.map(wireMessage),
    stream: true,
    stream_options: { include_usage: true },
    // Settings that are absent from the request are not sent, so that the upstream uses the defaults of its model.
    ...(temperature !== null && { temperature }),
    ...(topP !== null && { top_p: topP }),
    ...(presencePenalty !== null && { presence_penalty: presencePenalty }),
    ...(frequencyPenalty !== null && { frequency_penalty: frequencyPenalty }),
    ...(seed !== null && { seed }),
    ...(request.maxTokens !== null && { max_tokens: request.maxTokens }),
    ...(request.stop.length > 0 && { stop: request.stop }),
    ...(request.choices > 1 && { n: request.choices }),
    // OpenAI's name of the effort "off" is "none".
    ...(reasoningEffort !== undefined && { reasoning_effort: reasoningEffort === "off" ? "none" : reasoningEffort }),
    ...responseFormat(content),
    ...(tools !== null && {
      tools: tools.specs.map(({ name, description, parameters, strict }) => ({
        type: "function",
        function: {
          name,
          ...(description !== null && { description }),
          ...(parameters !== null && parameters !== undefined && { parameters }),
          ...(strict && { strict }),
        },
      })),
      tool_choice: tools.required ? "required" : "auto",
      ...(!tools.parallel && { parallel_tool_calls: false }),
    }),
  });
}

function checkSupported(request: GenerateRequest, continuesLast: boolean): void {
  const { sampling } = request;
  const refused: readonly (readonly [string, boolean])[] = [
    ["top_k", sampling.topK !== null],
    ["min_p", sampling.minP !== null],
    ["repetition_penalty", sampling.repetitionPenalty !== null],
    ["dry_multiplier", sampling.dry !== null],
    ["logit_bias", sampling.logitBias.length > 0],
    ["logprobs", sampling.topLogprobs !== null],
    ["prompt_logprobs", request.promptLogprobs !== null],
    ["best_of", request.candidates > request.choices],
    ["min_tokens", request.minTokens > 0],
    ["ignore_eos", request.ignoreEos],
    ["stop_token_ids", request.stopTokens.length > 0],
    ["thinking_budget", request.reasoningBudget !== null],
    ["adapter", request.adapter !== null],
    ["continue_final_message", continuesLast],
    ["images", (request.media ?? []).length > 0],
  ];
  for (const [field, isAsked] of refused) if (isAsked) throw unsupported(field, "it");
}

function unsupported(field: string, what: string): ServerError {
  const text = `${field}: the model is on a server that gives text only (upstream_mode), which does not take ${what}; remove it`;
  return new ServerError("unsupported", text, { param: field });
}

function responseFormat({ grammar }: RequestContent): object {
  if (grammar === null) return {};
  if (grammar.kind === "json") return { response_format: { type: "json_object" } };
  if (grammar.kind !== "json_schema") throw unsupported("grammar", `a ${grammar.kind} grammar`);
  const { schema } = grammar;
  return { response_format: { type: "json_schema", json_schema: { name: "output", schema, strict: true } } };
}

function wireMessage({ role, content, name, toolCalls, toolCallId }: ChatMessage): object {
  const calls = (toolCalls ?? []).map(({ id, name: called, arguments: args }) => {
    return { id, type: "function", function: { name: called, arguments: args } };
  });
  return {
    role,
    content: calls.length > 0 && content === "" ? null : content,
    // OpenAI's tool messages have no field for the name of the tool.
    ...(name !== undefined && role !== "tool" && { name }),
    ...(calls.length > 0 && { tool_calls: calls }),
    ...(toolCallId !== undefined && { tool_call_id: toolCallId }),
  };
}

interface OpenCall {
  /** Index that the upstream uses for the tool call. */
  readonly index: number;
  /** Id that the upstream gave the tool call; empty = none. */
  readonly id: string;
  arguments: string;
}

interface ChoiceState {
  call: OpenCall | null;
  calls: number;
  /** Number of calls whose arguments are complete. */
  wholeCalls: number;
  /** Why the choice has ended; null = it has not. */
  finish: FinishReason | null;
}

/** Reads the stream events of one response. */
export class ChatReader {
  usage: ChatUsage = { promptTokens: 0, cachedTokens: 0, completionTokens: 0, reasoningTokens: 0 };
  readonly #choices: readonly ChoiceState[];

  constructor(choices: number) {
    this.#choices = Array.from({ length: choices }, () => ({ call: null, calls: 0, wholeCalls: 0, finish: null }));
  }

  /** Why the choices have ended, without those that have not. */
  get reasons(): readonly FinishReason[] {
    return this.#choices.flatMap(({ finish }) => finish ?? []);
  }

  /** Whether all choices have ended. */
  get isComplete(): boolean {
    return this.#choices.every(({ finish }) => finish !== null);
  }

  /** Reads one event. Throws UpstreamFailure for an error event, and for JSON of an unexpected shape. */
  read(sent: unknown): readonly GenerateEvent[] {
    const event = record(sent, "an event");
    if (event.error !== undefined && event.error !== null) throw new UpstreamFailure("failed", errorText(event));
    if (typeof event.usage === "object" && event.usage !== null) this.usage = usageOf(event.usage);
    const events: GenerateEvent[] = [];
    for (const choice of list(event.choices ?? [], "choices")) this.#readChoice(record(choice, "a choice"), events);
    return events;
  }

  #readChoice(
    { index = 0, delta, finish_reason: reason }: Readonly<Record<string, unknown>>,
    events: GenerateEvent[],
  ): void {
    const choice = Number(index);
    const state = this.#choices[choice];
    if (state === undefined) throw garbage(`one of ${this.#choices.length} choices`, index);
    if (state.finish !== null) return;
    const { reasoning_content, reasoning, content, tool_calls } = record(delta ?? {}, "delta");
    const thought = reasoning_content ?? reasoning;
    if (typeof thought === "string" && thought !== "") events.push({ type: "reasoning", choice, text: thought });
    if (typeof content === "string" && content !== "") {
      this.#endCall(choice, state, false, events);
      events.push({ type: "text", choice, text: content });
    }
    for (const call of list(tool_calls ?? [], "tool_calls"))
      this.#readCall(choice, state, record(call, "a call"), events);
    if (typeof reason === "string") this.#finish(choice, state, reason, events);
  }

  #readCall(
    choice: number,
    state: ChoiceState,
    call: Readonly<Record<string, unknown>>,
    events: GenerateEvent[],
  ): void {
    const index = Number(call.index ?? state.calls);
    const { name, arguments: args = "" } = record(call.function ?? {}, "function");
    const isNamed = typeof name === "string" && name !== "";
    const id = typeof call.id === "string" ? call.id : "";
    // Some upstreams use one index for all calls, and some give the pieces of one call different ids, without its name.
    const hasOtherId = isNamed && id !== "" && id !== state.call?.id;
    if (state.call?.index !== index || hasOtherId) {
      this.#endCall(choice, state, false, events);
      if (!isNamed) throw garbage("the name of a called function", name);
      const number = state.calls++;
      state.call = { index, id, arguments: "" };
      events.push({ type: "tool_call", choice, call: number, id: id || `call_${choice}_${number}`, name });
    }
    if (typeof args !== "string" || args === "" || state.call === null) return;
    state.call.arguments += args;
    events.push({ type: "tool_arguments", choice, call: state.calls - 1, text: args });
  }

  #endCall(choice: number, state: ChoiceState, isCut: boolean, events: GenerateEvent[]): void {
    const { call } = state;
    if (call === null) return;
    state.call = null;
    const number = state.calls - 1;
    // Many upstreams send no arguments for a function without parameters.
    const isEmpty = call.arguments === "" && !isCut;
    if (isEmpty) events.push({ type: "tool_arguments", choice, call: number, text: "{}" });
    if (isEmpty || isJson(call.arguments)) {
      state.wholeCalls++;
      events.push({ type: "tool_call_end", choice, call: number });
    } else if (isCut) events.push({ type: "tool_call_cut", choice, call: number });
    else events.push({ type: "tool_call_failed", choice, call: number, text: call.arguments });
  }

  #finish(choice: number, state: ChoiceState, reason: string, events: GenerateEvent[]): void {
    this.#endCall(choice, state, reason === "length", events);
    if (reason === "content_filter") {
      events.push({
        type: "refusal",
        choice,
        reason: "the server of the model has filtered the output (content_filter)",
      });
    }
    state.finish = reason === "length" ? "length" : state.wholeCalls > 0 ? "tool_calls" : "stop";
    events.push({ type: "finish", choice, reason: state.finish, stopString: null });
  }
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function usageOf(sent: unknown): ChatUsage {
  const usage = record(sent, "usage");
  const inner = (name: string): Readonly<Record<string, unknown>> => {
    const value = usage[name];
    return typeof value === "object" && value !== null ? record(value, name) : {};
  };
  return {
    promptTokens: whole(usage.prompt_tokens),
    cachedTokens: whole(inner("prompt_tokens_details").cached_tokens),
    completionTokens: whole(usage.completion_tokens),
    reasoningTokens: whole(inner("completion_tokens_details").reasoning_tokens),
  };
}

function whole(value: unknown): number {
  return typeof value === "number" && Number.isSafeInteger(value) && value > 0 ? value : 0;
}
