// ChatTemplates: the chat templates of one model: the default template and, if the model file contains one, a second template for
// chats with tools. Created when a worker opens the model.
import type { ModelMetadata } from "../../engines/files/gguf/metadata.ts";
import { ChatTemplate } from "../../engines/text/template/chat-template.ts";
import type {
  ModelTemplateCapabilities,
  TemplateCapabilities,
} from "../../engines/text/template/template-capabilities.ts";
import { modelTemplateSource } from "../../engines/text/template/template-source.ts";
import type { Vocabulary } from "../../engines/text/tokenizer/vocabulary.ts";
import { ServerError } from "../../runtime/errors.ts";

/** A template, with the control tokens that the parser of its format must see. */
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
   * Compiles the templates. `named`: source of the template in the configuration; null = use the templates of the model file.
   * `capabilities`: results of earlier test renders of the same templates; null = run the test renders now. If no template is
   * usable, the model can still serve completions, and the method `for` throws the template's error.
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
    // If there is no usable second template, the default template also renders tools.
    return new ChatTemplates(usual, withTools instanceof ServerError ? null : withTools);
  }

  get capabilities(): ModelTemplateCapabilities {
    return {
      usual: this.#usual instanceof ServerError ? null : this.#usual.template.capabilities,
      withTools: this.#withTools?.template.capabilities ?? null,
    };
  }

  /** Whether the default template delimits reasoning. */
  get reasons(): boolean {
    return !(this.#usual instanceof ServerError) && this.#usual.template.thinking !== null;
  }

  /** Returns the template for a chat. Throws if no template is usable. */
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
