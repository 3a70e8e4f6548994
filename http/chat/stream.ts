// Chat stream: encodes generation events as the server-sent chunks of a chat completion. Its only state is the position in the
// stream. Hot path (one call per decode step and stream): constant text is built once, so only the generated text is encoded.

import type { AgentEvent } from "../../actors/api/agent/agents.ts";
import type { FinishReason, GenerateEvent, Usage } from "../../engines/generation.ts";
import type { LogprobRecords } from "../../engines/logprobs.ts";
import type { ShownTokens } from "../../engines/text/tokenizer/token-texts.ts";
import type { ErrorRecord } from "../../runtime/errors.ts";
import { errorBody } from "../errors.ts";
import { Sources } from "../shared/agent/web-results.ts";
import { extensionText } from "../shared/agent/wire.ts";
import { generationFields } from "../shared/answer/adapter-generation.ts";
import { arrayFragments, gathered } from "../shared/answer/json-pieces.ts";
import { hasLongLogprobs, TokenJson } from "../shared/answer/logprobs.ts";
import { wireFinishReason, wireUsage } from "../shared/answer/usage.ts";
import type { StreamCodec } from "../sse.ts";
import { type CompletionHead, wireAnnotations } from "./response.ts";

const DONE = "data: [DONE]\n\n";
const DELTA_END = '},"logprobs":null,"finish_reason":null}]}\n\n';
const LOGPROBS = '},"logprobs":{"content":';
const LOGPROBS_END = ',"refusal":null},"finish_reason":null}]}\n\n';

type TextEvent = Extract<GenerateEvent, { readonly type: "text" }>;
type CallEvent = Extract<GenerateEvent, { readonly type: "tool_call" }>;
type ArgumentsEvent = Extract<GenerateEvent, { readonly type: "tool_arguments" }>;

/** Field of a delta that carries text. */
type TextField = "content" | "reasoning_content" | "refusal";

/** Constant text of the chunks of one choice. */
interface ChoiceFrame {
  readonly delta: string;
  /** Constant text before the value of each field: `delta` followed by the field's name. */
  readonly before: Readonly<Record<TextField, string>>;
  hasRole: boolean;
}

export interface ChatStreamOptions {
  readonly choiceCount: number;
  /**
   * Whether `usage` is sent in an additional chunk without choices, as OpenAI's clients expect. If false, the chunk of the last
   * finish_reason carries it, so every chunk has a choice. The last chunk of the stream always carries `usage`.
   */
  readonly includeUsage: boolean;
  /** Whether events of the agent loop are sent in addition to the chunks. Approval requests are always sent. */
  readonly hasExtensions: boolean;
  /** Returns the token texts of the model; called only if there are logprobs. */
  readonly texts: () => ShownTokens;
}

export class ChatStream implements StreamCodec {
  readonly #completion: CompletionHead;
  readonly #includeUsage: boolean;
  readonly #hasExtensions: boolean;
  readonly #texts: () => ShownTokens;
  #tokens: TokenJson | null = null;
  #head = "";
  #choices: readonly ChoiceFrame[] = [];
  #unfinishedCount: number;
  /** Final chunk of the last choice, not yet closed because the usage is added to it. */
  #lastChunk = "";
  /** Session of the run, as a field of the last chunk; "": the request does not use the agent loop. */
  #session = "";
  /** Pages that the web tools of the run returned. */
  readonly #sources = new Sources();
  /** Text of the run, which may cite these pages. Used to build the annotations. */
  #text = "";
  #isEnded = false;

  constructor(head: CompletionHead, { choiceCount, includeUsage, hasExtensions, texts }: ChatStreamOptions) {
    this.#completion = head;
    this.#includeUsage = includeUsage;
    this.#hasExtensions = hasExtensions;
    this.#texts = texts;
    this.#unfinishedCount = choiceCount;
    this.#frame(choiceCount, null);
  }

  get isEnded(): boolean {
    return this.#isEnded;
  }

  encode(events: readonly AgentEvent[]): string | Iterable<string> {
    if (hasLongLogprobs(events)) return gathered(this.#fragments(this.#json(), events));
    let out = "";
    for (const event of events) out += this.#chunk(event);
    return out;
  }

  fail(error: ErrorRecord): string {
    this.#isEnded = true;
    return `${this.#closeLastChunk("")}data: ${errorBody(error)}\n\n${DONE}`;
  }

  *#fragments(tokens: TokenJson, events: readonly AgentEvent[]): Generator<string> {
    for (const event of events) {
      if (event.type !== "text" || event.logprobs === undefined) yield this.#chunk(event);
      else yield* this.#longDelta(tokens, event, event.logprobs);
    }
  }

  /** Encodes an event. Returns "" if the event has no output, or if its output is sent with a later event. */
  #chunk(event: AgentEvent): string {
    switch (event.type) {
      case "begin":
        if (event.adapterGeneration !== undefined) this.#frame(this.#choices.length, event.adapterGeneration);
        return "";
      case "prompt":
      case "rounds_reached":
      case "tool_call_end":
      case "tool_call_cut":
      case "tool_call_failed": // the arguments of the call have been sent already
        return "";
      case "reasoning":
        return this.#delta(event.choice, "reasoning_content", event.text);
      case "text":
        if (this.#session !== "") this.#text += event.text;
        if (event.logprobs === undefined) return this.#delta(event.choice, "content", event.text);
        return this.#deltaWithLogprobs(event, this.#json().list(event.logprobs));
      case "tool_call":
        return this.#call(event);
      case "tool_arguments":
        return this.#arguments(event);
      case "refusal":
        return this.#delta(event.choice, "refusal", event.reason);
      case "finish":
        return this.#finish(event.choice, event.reason);
      case "done":
        return this.#done(event.usage);
      case "error":
        return this.fail(event.error);
      case "session":
        this.#session = `,"session_id":${JSON.stringify(event.id)}`;
        return "";
      case "tool_progress":
        this.#sources.take(event);
        return this.#hasExtensions ? extensionText(event) : "";
      case "approval":
        return extensionText(event);
      case "file":
        return this.#hasExtensions ? extensionText(event) : "";
      default:
        return event satisfies never;
    }
  }

  #json(): TokenJson {
    this.#tokens ??= TokenJson.of(this.#texts());
    return this.#tokens;
  }

  /** Builds the constant text. Call it before the first chunk, once the adapter is known. */
  #frame(choiceCount: number, adapterGeneration: string | null): void {
    const { id, created, model } = this.#completion;
    const fields = JSON.stringify({
      id,
      object: "chat.completion.chunk",
      created,
      model,
      system_fingerprint: "local",
      ...generationFields(adapterGeneration),
      ...(this.#includeUsage ? { usage: null } : {}),
    });
    const head = `data: ${fields.slice(0, -1)},"choices":[`;
    this.#head = head;
    this.#choices = Array.from({ length: choiceCount }, (_, index) => choiceFrame(head, index));
  }

  #delta(index: number, field: TextField, text: string): string {
    const choice = this.#choices[index];
    if (choice === undefined) return "";
    return this.#before(choice, field) + JSON.stringify(text) + DELTA_END;
  }

  #deltaWithLogprobs({ choice: index, text }: TextEvent, list: string): string {
    const choice = this.#choices[index];
    if (choice === undefined) return "";
    return this.#before(choice, "content") + JSON.stringify(text) + LOGPROBS + list + LOGPROBS_END;
  }

  *#longDelta(tokens: TokenJson, { choice: index, text }: TextEvent, { floats }: LogprobRecords): Generator<string> {
    const choice = this.#choices[index];
    if (choice === undefined) return;
    yield this.#before(choice, "content") + JSON.stringify(text) + LOGPROBS;
    yield* arrayFragments(tokens.each([floats]));
    yield LOGPROBS_END;
  }

  #call({ choice: index, call, id, name }: CallEvent): string {
    const choice = this.#choices[index];
    if (choice === undefined) return "";
    const said = `{"index":${call},"id":${JSON.stringify(id)},"type":"function","function":{"name":${JSON.stringify(name)}`;
    return `${choice.delta}${this.#role(choice)}"tool_calls":[${said},"arguments":""}}]${DELTA_END}`;
  }

  #arguments({ choice: index, call, text }: ArgumentsEvent): string {
    const choice = this.#choices[index];
    if (choice === undefined) return "";
    const piece = JSON.stringify(text);
    return `${choice.delta}"tool_calls":[{"index":${call},"function":{"arguments":${piece}}}]${DELTA_END}`;
  }

  #finish(index: number, reason: FinishReason): string {
    const choice = this.#choices[index];
    if (choice === undefined) return "";
    const cited = this.#annotations(choice);
    const content = choice.hasRole ? "" : `${this.#role(choice)}"content":""`;
    const chunk = `${choice.delta}${content}},"logprobs":null,"finish_reason":"${wireFinishReason(reason)}"}]`;
    this.#unfinishedCount--;
    if (this.#unfinishedCount > 0) return `${cited}${chunk}}\n\n`;
    this.#lastChunk = chunk;
    return cited;
  }

  /** Returns the chunk with the annotations of the run's text; "" if the text cites no page. */
  #annotations(choice: ChoiceFrame): string {
    const annotations = wireAnnotations(this.#sources, this.#text);
    if (annotations.length === 0) return "";
    return `${choice.delta}${this.#role(choice)}"annotations":${JSON.stringify(annotations)}${DELTA_END}`;
  }

  #done(usage: Usage): string {
    this.#isEnded = true;
    const wire = `,"usage":${JSON.stringify(wireUsage(usage))}${this.#session}`;
    if (!this.#includeUsage && this.#lastChunk !== "") return this.#closeLastChunk(wire) + DONE;
    return `${this.#closeLastChunk("")}${this.#usageBefore()}]${wire}}\n\n${DONE}`;
  }

  /** Returns the constant text before the text of a field. The first delta of a choice also carries the role. */
  #before(choice: ChoiceFrame, field: TextField): string {
    return choice.hasRole ? choice.before[field] : `${choice.delta}${this.#role(choice)}"${field}":`;
  }

  #role(choice: ChoiceFrame): string {
    if (choice.hasRole) return "";
    choice.hasRole = true;
    return '"role":"assistant",';
  }

  #closeLastChunk(extra: string): string {
    if (this.#lastChunk === "") return "";
    const chunk = `${this.#lastChunk}${extra}}\n\n`;
    this.#lastChunk = "";
    return chunk;
  }

  // The usage chunk has a `usage` object, so the constant `"usage":null` of the other chunks must be removed.
  #usageBefore(): string {
    return this.#head.replace(',"usage":null,"choices"', ',"choices"');
  }
}

function choiceFrame(head: string, index: number): ChoiceFrame {
  const delta = `${head}{"index":${index},"delta":{`;
  // `join` creates one flat string. V8 would traverse a concatenated string piece by piece for every chunk.
  const before = (field: TextField): string => [delta, `"${field}":`].join("");
  return {
    delta,
    before: {
      content: before("content"),
      reasoning_content: before("reasoning_content"),
      refusal: before("refusal"),
    },
    hasRole: false,
  };
}
