// Chat result: converts a chat completion to the result of an MCP tool call, and reports progress from generation events.
import type { CallToolResult } from "@modelcontextprotocol/server";
import type { OnEvents } from "../observe/instrumented-inference.ts";

/** Minimum interval in ms between two progress reports. */
const PROGRESS_INTERVAL_MS = 100;

/** Fields of a chat completion that the result needs. */
interface ChatBody {
  readonly choices: readonly Choice[];
  readonly usage: object;
}

interface Choice {
  readonly message: {
    readonly content: string | null;
    readonly reasoning_content?: string;
    readonly refusal: string | null;
    readonly tool_calls?: readonly object[];
  };
  readonly finish_reason: string;
}

/**
 * Progress callback. Receives the number of characters generated so far, including reasoning, and the answer text generated
 * since the last call.
 */
export type OnProgress = (characters: number, text: string) => void;

export function chatResult(body: string): CallToolResult {
  const { choices, usage }: ChatBody = JSON.parse(body);
  const refusals = choices.flatMap(({ message }) => message.refusal ?? []);
  const hasCalls = choices.some(({ message }) => message.tool_calls !== undefined);
  return {
    content: [...choices.flatMap(texts), ...refusals].map((text) => ({ type: "text" as const, text })),
    ...(hasCalls && { structuredContent: { choices: choices.map(structured) } }),
    ...(refusals.length > 0 && { isError: true }),
    _meta: { finish_reasons: choices.map(({ finish_reason }) => finish_reason), usage },
  };
}

/** Returns the answer of a choice as text, and its tool calls as JSON texts, for clients that ignore structured content. */
function texts({ message, finish_reason }: Choice): string[] {
  const { content, reasoning_content, refusal, tool_calls } = message;
  const calls = tool_calls === undefined ? [] : [JSON.stringify({ tool_calls })];
  const said = content ? [content, ...calls] : calls;
  if (said.length > 0 || refusal !== null) return said;
  if (reasoning_content === undefined) return [""];
  return [`The model has reasoned but given no answer (finish_reason ${finish_reason}):\n\n${reasoning_content}`];
}

function structured({ message: { content, tool_calls }, finish_reason }: Choice, index: number): object {
  return { index, finish_reason, message: { role: "assistant", content: content ?? "", tool_calls } };
}

/** Returns an event callback that reports the progress of a generation. */
export function progressOf(onProgress: OnProgress): OnEvents {
  let characters = 0;
  let reported = 0;
  let reportedAtMs = Number.NEGATIVE_INFINITY;
  /** Text of the first choice that has not been reported yet. */
  let text = "";
  return (events) => {
    for (const event of events) {
      if (event.type !== "text" && event.type !== "reasoning" && event.type !== "tool_arguments") continue;
      characters += event.text.length;
      if (event.type === "text" && event.choice === 0) text += event.text;
    }
    const now = performance.now();
    // MCP requires that the progress value increases with each report.
    if (characters === reported || now - reportedAtMs < PROGRESS_INTERVAL_MS) return;
    reported = characters;
    reportedAtMs = now;
    onProgress(characters, text);
    text = "";
  };
}
