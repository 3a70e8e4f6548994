// Chat fold: turns the SSE text of a streamed chat completion into the result of a tool call, and reports progress while it
// arrives. It parses the wire format of the chat route, as any client does.
import type { CallToolResult } from "@modelcontextprotocol/server";

/** Minimum time between two progress reports. */
const PROGRESS_INTERVAL_MS = 100;

interface ToolCallDelta {
  readonly index: number;
  readonly id?: string;
  readonly function?: { readonly name?: string; readonly arguments?: string };
}

interface Delta {
  readonly content?: string | null;
  readonly reasoning_content?: string | null;
  readonly refusal?: string | null;
  readonly tool_calls?: readonly ToolCallDelta[];
}

interface Chunk {
  readonly choices?: readonly {
    readonly index: number;
    readonly delta: Delta;
    readonly finish_reason: string | null;
  }[];
  readonly usage?: object | null;
  readonly error?: { readonly message: string };
}

interface FoldedCall {
  readonly id: string;
  readonly type: "function";
  readonly function: { name: string; arguments: string };
}

interface FoldedChoice {
  text: string;
  reasoning: string;
  refusal: string | null;
  finishReason: string | null;
  readonly toolCalls: FoldedCall[];
}

/**
 * Progress callback: receives the number of characters generated so far, including reasoning, and the answer text generated
 * since the last call.
 */
export type OnProgress = (characters: number, text: string) => void;

export class ChatFold {
  readonly #onProgress: OnProgress | null;
  readonly #choices: FoldedChoice[] = [];
  #unread = "";
  #usage: object | null = null;
  #error: string | null = null;
  #characters = 0;
  #toldCharacters = 0;
  #untold = "";
  #toldAtMs = Number.NEGATIVE_INFINITY;

  constructor(onProgress: OnProgress | null) {
    this.#onProgress = onProgress;
  }

  /** Processes a piece of the stream. */
  push(piece: string): void {
    const events = (this.#unread + piece).split("\n\n");
    this.#unread = events.pop() ?? "";
    for (const event of events) {
      if (event.startsWith("data: {")) this.#take(JSON.parse(event.slice("data: ".length)) as Chunk);
    }
    this.#tell();
  }

  result(): CallToolResult {
    if (this.#error !== null) return { content: [{ type: "text", text: this.#error }], isError: true };
    const refusals = this.#choices.flatMap(({ refusal }) => (refusal === null ? [] : [refusal]));
    const calls = this.#choices.some(({ toolCalls }) => toolCalls.length > 0);
    return {
      content: [...this.#choices.flatMap(texts), ...refusals].map((text) => ({ type: "text" as const, text })),
      ...(calls && { structuredContent: { choices: this.#choices.map(wireChoice) } }),
      ...(refusals.length > 0 && { isError: true }),
      _meta: { finish_reasons: this.#choices.map(({ finishReason }) => finishReason), usage: this.#usage },
    };
  }

  #take({ choices = [], usage, error }: Chunk): void {
    for (const { index, delta, finish_reason } of choices) {
      const choice = this.#choice(index);
      choice.text += delta.content ?? "";
      choice.reasoning += delta.reasoning_content ?? "";
      choice.finishReason = finish_reason ?? choice.finishReason;
      if (typeof delta.refusal === "string") choice.refusal = (choice.refusal ?? "") + delta.refusal;
      for (const call of delta.tool_calls ?? []) takeCall(choice.toolCalls, call);
      this.#characters += sizeOf(delta);
      if (index === 0) this.#untold += delta.content ?? "";
    }
    this.#usage = usage ?? this.#usage;
    this.#error = error?.message ?? this.#error;
  }

  #choice(index: number): FoldedChoice {
    for (let i = this.#choices.length; i <= index; i++) {
      this.#choices.push({ text: "", reasoning: "", refusal: null, finishReason: null, toolCalls: [] });
    }
    return this.#choices[index] as FoldedChoice;
  }

  #tell(): void {
    const now = performance.now();
    if (this.#onProgress === null || now - this.#toldAtMs < PROGRESS_INTERVAL_MS) return;
    // MCP requires that the progress value increases with each report.
    if (this.#characters === this.#toldCharacters) return;
    this.#toldAtMs = now;
    this.#toldCharacters = this.#characters;
    this.#onProgress(this.#characters, this.#untold);
    this.#untold = "";
  }
}

function sizeOf({ content, reasoning_content, tool_calls = [] }: Delta): number {
  const calls = tool_calls.reduce((sum, call) => sum + (call.function?.arguments?.length ?? 0), 0);
  return (content?.length ?? 0) + (reasoning_content?.length ?? 0) + calls;
}

function takeCall(calls: FoldedCall[], { index, id = "", function: piece }: ToolCallDelta): void {
  const call = calls[index];
  if (call === undefined) {
    calls.push({ id, type: "function", function: { name: piece?.name ?? "", arguments: piece?.arguments ?? "" } });
  } else {
    call.function.arguments += piece?.arguments ?? "";
  }
}

/** Returns a choice as texts, for clients that ignore structured content: the answer, and the tool calls as JSON. */
function texts({ text, reasoning, refusal, finishReason, toolCalls }: FoldedChoice): string[] {
  const calls = toolCalls.length > 0 ? [JSON.stringify({ tool_calls: toolCalls })] : [];
  const said = text === "" ? calls : [text, ...calls];
  if (said.length > 0 || refusal !== null) return said;
  if (reasoning === "") return [text];
  return [`The model has reasoned but given no answer (finish_reason ${finishReason}):\n\n${reasoning}`];
}

function wireChoice({ text, finishReason, toolCalls }: FoldedChoice, index: number): object {
  const message = { role: "assistant", content: text, ...(toolCalls.length > 0 && { tool_calls: toolCalls }) };
  return { index, finish_reason: finishReason, message };
}
