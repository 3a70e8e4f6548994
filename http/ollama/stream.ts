// JSON line stream (NDJSON): encodes generation events as lines. A tool call is sent as one line when it is complete, because
// clients expect its arguments as an object.
import type { FinishReason, GenerateEvent } from "../../engines/generation.ts";
import type { ShownTokens } from "../../engines/text/tokenizer/token-texts.ts";
import type { ErrorRecord } from "../../runtime/errors.ts";
import { lineStreamHeaders } from "../exchange.ts";
import { arrayFragments, gathered } from "../shared/answer/json-pieces.ts";
import { hasLongLogprobs, TokenJson } from "../shared/answer/logprobs.ts";
import type { StreamCodec } from "../sse.ts";
import { ollamaErrors } from "./errors.ts";
import { finalFields, head, type Said, type Shape, wireCall } from "./response.ts";

type TextEvent = Extract<GenerateEvent, { readonly type: "text" }>;

export interface LineStreamOptions {
  /** Model name as in the request. */
  readonly model: string;
  readonly shape: Shape;
  /** Arrival time of the request, in milliseconds since 1970. */
  readonly receivedAt: number;
  readonly requestId: string;
  /** Returns the token texts of the model; called only if there are logprobs. */
  readonly texts: () => ShownTokens;
}

export class LineStream implements StreamCodec<GenerateEvent> {
  readonly headers = lineStreamHeaders;
  readonly #options: LineStreamOptions;
  #isEnded = false;
  /** Tool call whose arguments are being generated. */
  #call = { id: "", name: "", text: "" };
  /** Number of tool calls sent. */
  #calls = 0;
  #reason: FinishReason = "stop";

  constructor(options: LineStreamOptions) {
    this.#options = options;
  }

  get isEnded(): boolean {
    return this.#isEnded;
  }

  /** NDJSON has no comments, so a line without text is sent to keep an idle stream open. */
  get keepAlive(): string {
    return this.#line({ content: "" });
  }

  encode(events: readonly GenerateEvent[]): string | Iterable<string> {
    if (hasLongLogprobs(events)) return gathered(this.#fragments(events));
    let out = "";
    for (const event of events) out += this.#lineOf(event);
    return out;
  }

  fail(error: ErrorRecord): string {
    this.#isEnded = true;
    return `${ollamaErrors.body(error, this.#options.requestId)}\n`;
  }

  /** Encodes an event. Returns "" if the event has no output. */
  #lineOf(event: GenerateEvent): string {
    switch (event.type) {
      case "begin":
      case "prompt":
      case "tool_call_cut": // the arguments are incomplete; done_reason reports the token limit
      case "refusal": // the protocol has no field for the reason; the text has been sent
        return "";
      case "reasoning":
        return this.#line({ content: "", thinking: event.text });
      case "text":
        return event.logprobs === undefined ? this.#line({ content: event.text }) : [...this.#logprobs(event)].join("");
      case "tool_call":
        this.#call = { id: event.id, name: event.name, text: "" };
        return "";
      case "tool_arguments":
        this.#call.text += event.text;
        return "";
      case "tool_call_end":
        return this.#wholeCall();
      case "tool_call_failed":
        return this.#line({ content: event.text });
      case "finish":
        this.#reason = event.reason;
        return "";
      case "done":
        this.#isEnded = true;
        return this.#line({ content: "" }, finalFields(this.#reason, event.usage, this.#options.receivedAt));
      case "error":
        return this.fail(event.error);
      default:
        return event satisfies never;
    }
  }

  #wholeCall(): string {
    const { id, name, text } = this.#call;
    const call = wireCall(this.#calls, id, name, text);
    if (call === null) return this.#line({ content: text });
    this.#calls++;
    return this.#line({ content: "", calls: [call] });
  }

  *#fragments(events: readonly GenerateEvent[]): Generator<string> {
    for (const event of events) {
      if (event.type === "text") yield* this.#logprobs(event);
      else yield this.#lineOf(event);
    }
  }

  /** Yields the line of a text event with its logprobs. */
  *#logprobs({ text, logprobs }: TextEvent): Generator<string> {
    const line = this.#line({ content: text });
    if (logprobs === undefined) {
      yield line;
      return;
    }
    yield `${line.slice(0, -2)},"logprobs":`;
    yield* arrayFragments(TokenJson.of(this.#options.texts()).each([logprobs.floats]));
    yield "}\n";
  }

  #line(said: Said, last: object = { done: false }): string {
    const { model, shape } = this.#options;
    return `${JSON.stringify({ ...head(model), ...shape(said), ...last })}\n`;
  }
}
