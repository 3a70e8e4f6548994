// Request log (setting `log`) of `troupe run`: wraps Inference and writes each request and its response in full as one JSON
// line.
import type { Inference } from "../../actors/api/inference.ts";
import type { GenerateEvent, GenerateRequest } from "../../engines/generation.ts";
import { type GenerationHolder, InstrumentedInference } from "../../http/observe/instrumented-inference.ts";
import type { LineFile } from "../../runtime/log/line-file.ts";
import { withoutSecrets } from "../../runtime/log/secrets.ts";

export class LoggedInference extends InstrumentedInference {
  readonly #inner: Inference;
  readonly #file: Pick<LineFile, "append">;

  constructor(inner: Inference, file: Pick<LineFile, "append">) {
    super(inner, null, { holder: { generation: null } });
    this.#inner = inner;
    this.#file = file;
  }

  override async *generate(request: GenerateRequest, signal: AbortSignal): AsyncGenerator<readonly GenerateEvent[]> {
    const startedAt = Date.now();
    const answer: Answer = { text: "", reasoning: "", calls: new Map() };
    // An InstrumentedInference adds up all its generations, so each request has its own.
    const holder: GenerationHolder = { generation: null };
    const events = new InstrumentedInference(this.#inner, null, { holder }).generate(request, signal);
    try {
      for await (const batch of events) {
        for (const event of batch) note(answer, event);
        yield batch;
      }
    } finally {
      const { model, adapter, prompt, sampling } = request;
      const time = new Date(startedAt).toISOString();
      const { usage, error, finishReasons } = holder.generation ?? { usage: null, error: null, finishReasons: [] };
      const [finishReason = null] = finishReasons;
      const { text, reasoning, calls } = answer;
      const toolCalls = calls.size === 0 ? {} : { toolCalls: [...calls.values()] };
      const response = { text, reasoning, ...toolCalls, finishReason, usage, error };
      const entry = {
        time,
        model,
        durationMs: Date.now() - startedAt,
        request: { adapter, prompt, sampling },
        response,
      };
      this.#file.append(withoutSecrets(JSON.stringify(entry)));
    }
  }
}

interface Answer {
  text: string;
  reasoning: string;
  /** Tool calls by their number. `arguments` is JSON text. */
  readonly calls: Map<number, { readonly name: string; arguments: string }>;
}

function note(answer: Answer, event: GenerateEvent): void {
  const { calls } = answer;
  if (event.type === "text" || event.type === "reasoning") answer[event.type] += event.text;
  else if (event.type === "tool_call") calls.set(event.call, { name: event.name, arguments: "" });
  else if (event.type === "tool_arguments") {
    const call = calls.get(event.call);
    if (call !== undefined) call.arguments += event.text;
    // The text of a call that is not valid is part of the answer, unless the call has begun.
  } else if (event.type === "tool_call_failed" && !calls.has(event.call)) answer.text += event.text;
}
