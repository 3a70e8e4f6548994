// Request log (setting `log`) of `troupe run`: wraps Inference and writes each request and its response in full as one JSON
// line.
import type { Inference } from "../../actors/api/inference.ts";
import type { GenerateEvent, GenerateRequest } from "../../engines/generation.ts";
import { type GenerationHolder, InstrumentedInference } from "../../http/observe/instrumented-inference.ts";
import type { LineFile } from "../../runtime/log/line-file.ts";
import { withoutSecrets } from "../../runtime/log/secrets.ts";

export class LoggedInference extends InstrumentedInference {
  readonly #holder: GenerationHolder;
  readonly #file: Pick<LineFile, "append">;

  constructor(inner: Inference, file: Pick<LineFile, "append">) {
    const holder: GenerationHolder = { generation: null };
    super(inner, null, { holder });
    this.#holder = holder;
    this.#file = file;
  }

  override async *generate(request: GenerateRequest, signal: AbortSignal): AsyncGenerator<readonly GenerateEvent[]> {
    const startedAt = Date.now();
    const said = { text: "", reasoning: "" };
    const events = super.generate(request, signal);
    const generation = this.#holder.generation;
    try {
      for await (const batch of events) {
        for (const event of batch) {
          if (event.type === "text" || event.type === "reasoning") said[event.type] += event.text;
        }
        yield batch;
      }
    } finally {
      const { model, adapter, prompt, sampling } = request;
      const time = new Date(startedAt).toISOString();
      const { usage, error } = generation ?? { usage: null, error: null };
      const [finishReason = null] = generation?.finishReasons ?? [];
      const response = { ...said, finishReason, usage, error };
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
