// Message stream: encodes generation events as named server-sent events. Its only state is the position in the stream. Hot
// path (one call per decode step and stream): constant text is built once per block, so only the generated text is encoded.
import type { AgentEvent } from "../../actors/api/agent/agents.ts";
import type { Usage } from "../../engines/generation.ts";
import type { ErrorRecord } from "../../runtime/errors.ts";
import type { ProgressEvent } from "../shared/agent/progress-event.ts";
import { Sources } from "../shared/agent/web-results.ts";
import { extensionText } from "../shared/agent/wire.ts";
import type { StreamCodec } from "../sse.ts";
import { messagesErrors } from "./errors.ts";
import {
  type Ending,
  type MessageHead,
  message,
  notStopped,
  WebCalls,
  wireContainer,
  wireStop,
  wireUsage,
} from "./response.ts";
import { resultBlock, useBlock } from "./server-blocks.ts";
import { citationsOf } from "./web-blocks.ts";

const PING = 'event: ping\ndata: {"type":"ping"}\n\n';
const MESSAGE_STOP = 'event: message_stop\ndata: {"type":"message_stop"}\n\n';
/** Empty signature. Reasoning is not signed, but clients keep a thinking block only if it has a signature field. */
const EMPTY_SIGNATURE = '"signature_delta","signature":""}}\n\n';
const DELTA_END = "}}\n\n";

type BlockKind = "thinking" | "text" | "tool_use";

const deltaTypes: Readonly<Record<BlockKind, string>> = {
  thinking: '"thinking_delta","thinking":',
  text: '"text_delta","text":',
  tool_use: '"input_json_delta","partial_json":',
};

export class MessageStream implements StreamCodec {
  readonly #head: MessageHead;
  readonly #requestId: string;
  /** Whether events of the agent loop are sent in addition to the protocol's events. */
  readonly #hasExtensions: boolean;
  #hasBegun = false;
  #isEnded = false;
  readonly #ending: { -readonly [Field in keyof Ending]: Ending[Field] } = {
    finishReason: "stop",
    stopString: null,
    refusal: null,
    isLimited: false,
  };
  /** Session of the agent run; null if the request does not use the agent loop. */
  #session: string | null = null;
  /** Ids of the server calls whose blocks have been sent. */
  readonly #announced = new Set<string>();
  /** Type of the content block in progress; null if no block is open. */
  #open: BlockKind | null = null;
  /** Constant text before each delta of the block in progress. */
  #delta = "";
  /** Text of the block in progress. Collected only if the agent run has returned web pages, because the text may cite them. */
  #text = "";
  readonly #sources = new Sources();
  readonly #webCalls = new WebCalls();
  #blockCount = 0;

  constructor(head: MessageHead, requestId: string, hasExtensions: boolean) {
    this.#head = head;
    this.#requestId = requestId;
    this.#hasExtensions = hasExtensions;
  }

  get isEnded(): boolean {
    return this.#isEnded;
  }

  /**
   * Text sent to keep an idle connection open: a ping event. Before message_start it is a comment line, because message_start
   * must be the first event.
   */
  get keepAlive(): string {
    return this.#hasBegun ? PING : ": keep-alive\n\n";
  }

  encode(events: readonly AgentEvent[]): string {
    let out = "";
    for (const event of events) {
      if (!this.#hasBegun && event.type !== "error" && event.type !== "session") out += this.#start(event);
      out += this.#encodeOne(event);
    }
    return out;
  }

  fail(error: ErrorRecord): string {
    this.#isEnded = true;
    return `event: error\ndata: ${messagesErrors.body(error, this.#requestId)}\n\n`;
  }

  #encodeOne(event: AgentEvent): string {
    switch (event.type) {
      case "session":
        this.#session = event.id;
        return "";
      case "tool_progress":
        this.#sources.take(event);
        this.#webCalls.take(event);
        return this.#hasExtensions ? this.#progress(event) + extensionText(event) : "";
      case "approval":
      case "file":
        return this.#hasExtensions ? extensionText(event) : "";
      case "rounds_reached":
        this.#ending.isLimited = true;
        return "";
      case "begin":
      case "prompt":
        return "";
      case "reasoning":
        return this.#piece("thinking", event.text);
      case "text":
        return this.#piece("text", event.text);
      case "tool_call":
        return this.#openBlock("tool_use", toolUse(event.id, event.name));
      case "tool_arguments":
        return this.#delta + JSON.stringify(event.text) + DELTA_END;
      case "tool_call_end":
      case "tool_call_cut":
      // The block is closed without changes, because the client has already received the arguments, and the protocol cannot
      // revoke them.
      case "tool_call_failed":
        return this.#closeBlock();
      case "refusal":
        this.#ending.refusal = event.reason;
        return "";
      case "finish":
        this.#ending.finishReason = event.reason;
        this.#ending.stopString = event.stopString;
        return this.#closeBlock();
      case "done":
        return this.#done(event.usage);
      case "error":
        return this.fail(event.error);
      default:
        event satisfies never;
        return "";
    }
  }

  /** Returns the tool call's block when the call begins, and its result block when the call ends. */
  #progress(event: ProgressEvent): string {
    const { id } = event.call;
    const use = this.#announced.has(id) ? null : useBlock(event);
    this.#announced.add(id);
    const announced = use === null ? "" : this.#wholeBlock({ ...use, input: {} }, use.input);
    const result = event.phase === "complete" ? resultBlock(event, this.#session ?? "") : null;
    return announced + (result === null ? "" : this.#wholeBlock(result, null));
  }

  /** Returns the events of a complete block. `input`: sent as the block's only delta; null: no delta. */
  #wholeBlock(block: object, input: object | null): string {
    const opened = this.#openBlock("tool_use", JSON.stringify(block));
    const delta = input === null ? "" : this.#delta + JSON.stringify(JSON.stringify(input)) + DELTA_END;
    return opened + delta + this.#closeBlock();
  }

  #start(event: AgentEvent): string {
    this.#hasBegun = true;
    const { promptTokens, cachedTokens } = event.type === "begin" ? event : { promptTokens: 0, cachedTokens: 0 };
    const counts = { promptTokens, cachedTokens, completionTokens: 0, reasoningTokens: 0, serverToolUse: null };
    const data = JSON.stringify({
      type: "message_start",
      message: message(this.#head, [], notStopped, counts, this.#session),
    });
    return `event: message_start\ndata: ${data}\n\n${PING}`;
  }

  #piece(kind: "thinking" | "text", text: string): string {
    if (text === "") return ""; // the event has only logprobs
    const opened = this.#open === kind ? "" : this.#openBlock(kind, emptyBlocks[kind]);
    if (kind === "text" && !this.#sources.isEmpty) this.#text += text;
    return opened + this.#delta + JSON.stringify(text) + DELTA_END;
  }

  #openBlock(kind: BlockKind, block: string): string {
    const closed = this.#closeBlock();
    const index = this.#blockCount++;
    this.#open = kind;
    // `join` creates one flat string. V8 would traverse a concatenated string piece by piece for every delta.
    this.#delta = [deltaBefore(index), deltaTypes[kind]].join("");
    const start = `event: content_block_start\ndata: {"type":"content_block_start","index":${index},"content_block":`;
    return `${closed}${start}${block}}\n\n`;
  }

  #closeBlock(): string {
    if (this.#open === null) return "";
    const index = this.#blockCount - 1;
    const signature = this.#open === "thinking" ? deltaBefore(index) + EMPTY_SIGNATURE : "";
    const citations = this.#citations(index);
    this.#open = null;
    return `${signature}${citations}event: content_block_stop\ndata: {"type":"content_block_stop","index":${index}}\n\n`;
  }

  /** Returns the citations of the text block in progress. */
  #citations(index: number): string {
    const citations = citationsOf(this.#sources, this.#text);
    this.#text = "";
    const delta = (citation: object) => `"citations_delta","citation":${JSON.stringify(citation)}${DELTA_END}`;
    return citations.map((citation) => deltaBefore(index) + delta(citation)).join("");
  }

  #done(usage: Usage): string {
    this.#isEnded = true;
    const data = JSON.stringify({
      type: "message_delta",
      delta: { ...wireStop(this.#ending), container: wireContainer(this.#session) },
      usage: wireUsage({ ...usage, serverToolUse: this.#webCalls.usage }),
      ...(this.#session === null ? {} : { session_id: this.#session }),
    });
    return `${this.#closeBlock()}event: message_delta\ndata: ${data}\n\n${MESSAGE_STOP}`;
  }
}

const emptyBlocks = {
  thinking: '{"type":"thinking","thinking":"","signature":""}',
  text: '{"type":"text","text":""}',
} as const;

function toolUse(id: string, name: string): string {
  return JSON.stringify({ type: "tool_use", id, name, input: {}, caller: { type: "direct" } });
}

function deltaBefore(index: number): string {
  return `event: content_block_delta\ndata: {"type":"content_block_delta","index":${index},"delta":{"type":`;
}
