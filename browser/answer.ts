// Answer: one response of a model in a page. Translates the request, and converts the generation events to the stream that POST
// /v1/responses sends.

import type { GenerateEvent, Usage } from "../engines/generation.ts";
import type { GenerationDefaults } from "../engines/sampling-defaults.ts";
import type { ShownTokens } from "../engines/text/tokenizer/token-texts.ts";
import { textOf } from "../http/responses/fold/event-chunks.ts";
import { EventText } from "../http/responses/fold/event-text.ts";
import { ResponseFold } from "../http/responses/fold/fold.ts";
import { echoedSettings } from "../http/responses/fold/resource.ts";
import { type ResponseTranslation, responseTranslator } from "../http/responses/request/translator.ts";
import type { AnswerMemory } from "../http/shared/answer/answer-memory.ts";
import type { AskedRequest } from "../http/shared/translation.ts";
import { ServerError, toErrorRecord } from "../runtime/errors.ts";

/** Client id of all requests in a page. */
export const client = "page";

/** Request fields that may ask for features that a model in the browser does not have. */
interface Body {
  readonly tools?: readonly unknown[];
  readonly adapter?: unknown;
  readonly input?: unknown;
}

export interface AnswerOptions {
  /** Name of the model. */
  readonly name: string;
  readonly defaults: GenerationDefaults;
  readonly texts: ShownTokens;
  readonly memory: AnswerMemory;
}

export class Answer {
  readonly #id = `resp_${crypto.randomUUID().replaceAll("-", "")}`;
  readonly #translation: ResponseTranslation;
  readonly #options: AnswerOptions;

  /** Throws `unsupported` if the body uses a feature that a model in a page does not have. */
  constructor(body: object, options: AnswerOptions) {
    refuseServerFeatures(body);
    this.#options = options;
    this.#translation = responseTranslator.translate(body, { responseId: this.#id, offered: null }, "refuse");
    if (this.#translation.isWhole) return;
    const message = "a model in the browser keeps no responses: send the whole conversation as input";
    throw new ServerError("unsupported", message, { param: "previous_response_id" });
  }

  get asked(): AskedRequest {
    return this.#translation.asked;
  }

  /**
   * Runs the generation and emits the stream of the response. Never rejects. `generate`: runs the model and passes the
   * generation's events to its callback `take`.
   */
  async run(
    signal: AbortSignal,
    emit: (text: string) => void,
    generate: (take: (event: GenerateEvent) => void) => Promise<Usage>,
  ): Promise<void> {
    const { name, defaults, texts, memory } = this.#options;
    const { facts, asked } = this.#translation;
    const events = new EventText();
    const flush = (): void => {
      const text = textOf(events.take());
      emit(typeof text === "string" ? text : [...text].join(""));
    };
    const lease = memory.lease(client);
    const fold = new ResponseFold({
      head: {
        id: this.#id,
        createdAt: Math.floor(Date.now() / 1000),
        model: facts.model ?? name,
        settings: echoedSettings(facts.settings, asked, defaults),
        namespacedNames: facts.namespacedNames,
        includesSources: false,
      },
      events,
      status: "in_progress",
      hasExtensions: false,
      tokenTexts: () => texts,
      lease,
    });
    try {
      flush();
      const usage = await generate((event) => {
        fold.take(event);
        flush();
      });
      fold.take({ type: "done", usage });
    } catch (error) {
      if (signal.aborted) fold.interrupt("cancelled");
      else fold.fail(toErrorRecord(error));
    } finally {
      lease.release();
    }
    flush();
  }
}

/** Throws `unsupported` for tools, files and adapters, which only a server has. */
function refuseServerFeatures({ tools, adapter, input }: Body): void {
  const hasFile = JSON.stringify(input ?? "").includes('"type":"input_file"');
  const wanted = adapter ? "adapters" : (tools ?? []).length > 0 ? "tools" : hasFile ? "files" : null;
  if (wanted === null) return;
  throw new ServerError("unsupported", `a model in the browser has no ${wanted}: choose a model of the server`);
}
