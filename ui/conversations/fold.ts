// Fold: builds an answer from the events of its response. It can start in the middle of the events, from a stored answer.
import type { ServerEvent } from "../server/events.ts";
import type {
  Approval,
  OutputItem,
  ProducedFile,
  ResponseBody,
  TextPart,
  TokenLogprob,
  ToolProgress,
} from "../server/wire.ts";
import type { Activity, Answer, AnswerStatus } from "./records.ts";

interface OpenItem {
  readonly type: string;
  content?: OpenPart[] | null;
  [field: string]: unknown;
}
type OpenPart = { -readonly [Field in keyof TextPart]: TextPart[Field] };

const endings: Readonly<Record<string, AnswerStatus>> = {
  "response.completed": "completed",
  "response.incomplete": "incomplete",
  "response.failed": "failed",
  "response.cancelled": "cancelled",
};

export class AnswerFold {
  #answer: Answer;
  readonly #items: OpenItem[];
  readonly #activity: Activity[];
  /** Time of the request in milliseconds since 1970. The durations of a resumed answer include the interruption. */
  readonly #startedAt: number;

  constructor(answer: Answer) {
    const { base } = answer;
    // A continuation is always read from its first event, because its items are joined with those of the original answer.
    this.#answer = base === null ? answer : { ...answer, sequence: -1 };
    this.#items = base === null ? answer.output.map(opened) : [];
    this.#activity = base === null ? [...answer.activity] : [...base.activity];
    this.#startedAt = base?.continuedAt ?? answer.createdAt;
  }

  /** Answer as built so far. */
  get answer(): Answer {
    const output = joined(this.#answer.base?.output ?? [], this.#items.map(closed));
    return { ...this.#answer, output, activity: [...this.#activity] };
  }

  take({ name, data }: ServerEvent): void {
    if (typeof data.sequence_number === "number") this.#set({ sequence: data.sequence_number });
    const ending = endings[name];
    if (ending !== undefined) this.#end(data.response as ResponseBody, ending);
    else this.#takePart(name, data);
  }

  /** Ends the answer if the response has no final event. */
  stop(status: AnswerStatus, problem: string): void {
    this.#set({ status, problem });
  }

  #takePart(name: string, data: ServerEvent["data"]): void {
    switch (name) {
      case "response.created": {
        const { id, session_id: session = "" } = data.response as ResponseBody;
        this.#set({ responseId: id, session });
        break;
      }
      case "response.output_item.added":
      case "response.output_item.done":
        this.#items[data.output_index as number] = opened(data.item as OutputItem);
        this.#time((data.item as OutputItem).type === "reasoning");
        break;
      case "response.content_part.added":
        this.#partOf(data, data.part as TextPart);
        break;
      case "response.output_text.delta":
        this.#grow(data, "text", "output_text");
        break;
      case "response.reasoning_text.delta":
        this.#grow(data, "text", "reasoning_text");
        break;
      case "response.refusal.delta":
        this.#grow(data, "refusal", "refusal");
        break;
      case "response.function_call_arguments.delta":
      case "response.mcp_call_arguments.delta": {
        const item = this.#items[data.output_index as number];
        if (item !== undefined) item.arguments = String(item.arguments ?? "") + String(data.delta);
        break;
      }
      case "agentic_tool_call_progress":
        this.#activity.push({ kind: "progress", progress: data as unknown as ToolProgress });
        break;
      case "agentic_tool_approval_required":
        this.#activity.push({ kind: "approval", approval: data as unknown as Approval });
        break;
      case "file_produced":
        this.#activity.push({ kind: "file", file: data as unknown as ProducedFile });
        break;
      case "error":
        this.stop("failed", String(data.message ?? (data.error as { message?: string } | undefined)?.message ?? ""));
        break;
    }
  }

  #grow(data: ServerEvent["data"], field: "text" | "refusal", type: TextPart["type"]): void {
    const part = this.#partOf(data, { type });
    part[field] = (part[field] ?? "") + String(data.delta);
    const logprobs = data.logprobs as readonly TokenLogprob[] | undefined;
    if (logprobs !== undefined && logprobs.length > 0) part.logprobs = [...(part.logprobs ?? []), ...logprobs];
    this.#time(type === "reasoning_text");
  }

  /** Returns the content part to which an event belongs. Creates it if it does not exist. */
  #partOf(data: ServerEvent["data"], part: TextPart): OpenPart {
    const item = this.#items[data.output_index as number] ?? { type: "message" };
    this.#items[data.output_index as number] = item;
    const content = item.content ?? [];
    item.content = content;
    const index = (data.content_index as number | undefined) ?? 0;
    const found = content[index] ?? { ...part };
    content[index] = found;
    return found;
  }

  #time(isReasoning: boolean): void {
    const elapsed = Date.now() - this.#startedAt;
    const { firstMs, reasoningMs } = this.#answer;
    this.#set({
      firstMs: firstMs ?? elapsed,
      lastMs: elapsed,
      reasoningMs: isReasoning ? elapsed - (firstMs ?? elapsed) : reasoningMs,
    });
  }

  #end(response: ResponseBody, status: AnswerStatus): void {
    this.#items.splice(0, this.#items.length, ...withLogprobs(response.output, this.#items));
    const reason = response.incomplete_details?.reason ?? "";
    this.#set({
      status,
      problem: response.error?.message ?? reason,
      usage: response.usage,
      session: response.session_id ?? this.#answer.session,
      model: response.model,
    });
  }

  #set(changes: Partial<Answer>): void {
    this.#answer = { ...this.#answer, ...changes };
  }
}

function opened(item: OutputItem): OpenItem {
  return {
    ...item,
    ...(Array.isArray(item.content) && { content: item.content.map((part) => ({ ...part })) }),
  } as OpenItem;
}

function closed(item: OpenItem): OutputItem {
  return opened(item as OutputItem) as OutputItem;
}

/** Adds the logprobs collected from the deltas to the items of the final event, which may lack them. */
function withLogprobs(output: readonly OutputItem[], items: readonly OpenItem[]): OpenItem[] {
  return output.map((item, i) => {
    const next = opened(item);
    for (const [k, part] of (next.content ?? []).entries()) {
      const before = items[i]?.content?.[k]?.logprobs;
      if ((part.logprobs ?? []).length === 0 && before !== undefined) part.logprobs = before;
    }
    return next;
  });
}

/**
 * Joins the items of an answer with those of its continuation. The first text of the continuation is appended to the last text
 * of the answer.
 */
function joined(base: readonly OutputItem[], items: readonly OutputItem[]): readonly OutputItem[] {
  const [last, first] = [base.at(-1), items[0]];
  if (last?.type !== "message" || first?.type !== "message") return [...base, ...items];
  const [before, after] = [last.content?.at(-1), first.content?.[0]];
  if (before?.type !== "output_text" || after?.type !== "output_text") return [...base, ...items];
  const part = {
    ...before,
    text: (before.text ?? "") + (after.text ?? ""),
    logprobs: [...(before.logprobs ?? []), ...(after.logprobs ?? [])],
  };
  const content = [...(last.content ?? []).slice(0, -1), part, ...(first.content ?? []).slice(1)];
  return [...base.slice(0, -1), { ...last, content }, ...items.slice(1)];
}
