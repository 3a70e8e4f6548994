// Owns the chat templates of one model: the one for all chats, and the one for chats with tools where the model file has a
// second. Opened when the model attaches.
import type { ModelMetadata } from "../../engines/files/gguf/metadata.ts";
import { ChatTemplate } from "../../engines/text/template/chat-template.ts";
import type {
  ModelTemplateCapabilities,
  TemplateCapabilities,
} from "../../engines/text/template/template-capabilities.ts";
import { modelTemplateSource } from "../../engines/text/template/template-source.ts";
import type { Vocabulary } from "../../engines/text/tokenizer/vocabulary.ts";
import { ServerError } from "../../runtime/errors.ts";

/** A template, and the control tokens that its format's parser must see. */
export interface OpenTemplate {
  readonly template: ChatTemplate;
  readonly shownTokens: ReadonlySet<number>;
}

export class ChatTemplates {
  readonly #usual: OpenTemplate | ServerError;
  readonly #withTools: OpenTemplate | null;

  private constructor(usual: OpenTemplate | ServerError, withTools: OpenTemplate | null) {
    this.#usual = usual;
    this.#withTools = withTools;
  }

  /**
   * `named` is the template that the configuration names, if it does. `capabilities`: what earlier test renders of the
   * same templates have shown; without them, the test renders run now. A model without a usable template of its own still
   * serves completions: the error is kept for chats.
   */
  static open(
    named: string | null,
    { chatTemplates, tokenizer }: ModelMetadata,
    vocabulary: Vocabulary,
    capabilities: ModelTemplateCapabilities = { usual: null, withTools: null },
  ): ChatTemplates {
    const opened = (source: string, known: TemplateCapabilities | null) => compile(source, vocabulary, known);
    if (named !== null) return new ChatTemplates(opened(named, capabilities.usual), null);
    const usual = unlessRefused(() => opened(modelTemplateSource(chatTemplates, tokenizer), capabilities.usual));
    const toolSource = chatTemplates.get("tool_use");
    const withTools = toolSource === undefined ? null : unlessRefused(() => opened(toolSource, capabilities.withTools));
    // One that cannot be used is no loss: the usual one takes tools as well as it can.
    return new ChatTemplates(usual, withTools instanceof ServerError ? null : withTools);
  }

  get capabilities(): ModelTemplateCapabilities {
    return {
      usual: this.#usual instanceof ServerError ? null : this.#usual.template.capabilities,
      withTools: this.#withTools?.template.capabilities ?? null,
    };
  }

  /** The one for a chat. Throws why there is none. */
  for(hasTools: boolean): OpenTemplate {
    if (hasTools && this.#withTools !== null) return this.#withTools;
    if (this.#usual instanceof ServerError) throw this.#usual;
    return this.#usual;
  }
}

function compile(source: string, vocabulary: Vocabulary, capabilities: TemplateCapabilities | null): OpenTemplate {
  const template = new ChatTemplate(source, vocabulary, capabilities);
  const { shownTokens } = template.format;
  const tokens = vocabulary.controlTokens.filter((token) => shownTokens.includes(vocabulary.tokenText(token)));
  return { template, shownTokens: new Set(tokens) };
}

function unlessRefused<Value>(make: () => Value): Value | ServerError {
  try {
    return make();
  } catch (error) {
    if (error instanceof ServerError) return error;
    throw error;
  }
}
