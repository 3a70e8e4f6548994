// Owns the text side of one model on the agents thread: its vocabulary, its chat template and its limits. The vocabulary
// is our own, in TypeScript: the native tokenizer recurses over some prompts until the process dies, and a user's text
// must never be able to do that to the server. It is checked once, when the model attaches, against the engine's tokens,
// where the engine has a tokenizer.
import type { GenerateRequest } from "../../engines/chat.ts";
import { type ModelMetadata, readModelMetadata } from "../../engines/gguf/metadata.ts";
import { ChatTemplate } from "../../engines/template/chat-template.ts";
import { loadTemplateOverride, modelTemplateSource } from "../../engines/template/template-source.ts";
import {
  createVocabulary,
  type PromptText,
  type Vocabulary,
  vocabularyProbes,
} from "../../engines/tokenizer/vocabulary.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { AttachedModel } from "../messages.ts";

/** Share of the context an over-long prompt keeps where the request allows cutting it and sets no max_tokens. */
const truncatedPromptShare = 0.75;

export class TextModel {
  readonly id: string;
  readonly vocabulary: Vocabulary;
  /** Tokens, prompt and output, one sequence may hold. */
  readonly sequenceTokens: number;
  readonly #template: ChatTemplate | ServerError;

  private constructor(
    id: string,
    vocabulary: Vocabulary,
    template: ChatTemplate | ServerError,
    sequenceTokens: number,
  ) {
    this.id = id;
    this.vocabulary = vocabulary;
    this.sequenceTokens = sequenceTokens;
    this.#template = template;
  }

  /** Reads the model file's vocabulary and template. Throws `model_file_invalid` where they cannot be used. */
  static async open(model: AttachedModel): Promise<TextModel> {
    const metadata = await readModelMetadata(model.path);
    const vocabulary = createVocabulary(metadata.tokenizer);
    checkProbes(model, vocabulary);
    const template = await openTemplate(model, metadata, vocabulary);
    return new TextModel(model.id, vocabulary, template, model.ready.capacity.sequenceTokens);
  }

  /** The request's prompt as tokens. Throws `context_length_exceeded` before tokenising where bytes alone tell. */
  promptTokens(request: GenerateRequest): Int32Array {
    const room = this.sequenceTokens - (request.maxTokens ?? 1);
    const prompt = this.#render(request);
    const tokens = request.truncatePrompt
      ? this.#truncated(prompt, request, room)
      : this.#encode(prompt, request, room);
    if (tokens.length === 0) {
      throw new ServerError("invalid_value", "the prompt is empty; expected at least one token of text", {
        param: request.prompt.kind === "chat" ? "messages" : "prompt",
      });
    }
    if (tokens.length > room) throw this.#tooLong(`${tokens.length} tokens`, request);
    return tokens;
  }

  #render({ prompt }: GenerateRequest): PromptText | string {
    if (prompt.kind === "text") return prompt.text;
    return this.#requireTemplate().render(prompt.messages, prompt.templateArguments);
  }

  #encode(prompt: PromptText | string, request: GenerateRequest, room: number): Int32Array {
    const bytes = Buffer.byteLength(typeof prompt === "string" ? prompt : prompt.text);
    const leastTokens = Math.ceil(bytes / this.vocabulary.longestPieceBytes);
    if (leastTokens > room) throw this.#tooLong(`${bytes} bytes, at least ${leastTokens} tokens`, request);
    return this.#tokens(prompt);
  }

  /** The end of the prompt that fits. Text that cannot be part of it is cut off before it is tokenised. */
  #truncated(prompt: PromptText | string, { maxTokens }: GenerateRequest, room: number): Int32Array {
    const kept = Math.max(maxTokens === null ? Math.floor(this.sequenceTokens * truncatedPromptShare) : room, 1);
    const characters = (kept + 1) * this.vocabulary.longestPieceBytes;
    const end =
      typeof prompt === "string" ? prompt.slice(-characters) : { ...prompt, text: prompt.text.slice(-characters) };
    const tokens = this.#tokens(end);
    return tokens.length <= kept ? tokens : tokens.slice(tokens.length - kept);
  }

  #tokens(prompt: PromptText | string): Int32Array {
    return typeof prompt === "string" ? this.vocabulary.encodeCompletion(prompt) : this.vocabulary.encodePrompt(prompt);
  }

  #requireTemplate(): ChatTemplate {
    if (this.#template instanceof ServerError) throw this.#template;
    return this.#template;
  }

  #tooLong(came: string, request: GenerateRequest): ServerError {
    const output = request.maxTokens === null ? "" : `, including max_tokens ${request.maxTokens}`;
    return new ServerError(
      "context_length_exceeded",
      `prompt is ${came}; model "${this.id}" takes ${this.sequenceTokens}${output}`,
      { param: request.prompt.kind === "chat" ? "messages" : "prompt" },
    );
  }
}

/** A model without a usable template still serves completions: the error is kept for chat requests. */
async function openTemplate(
  { chatTemplate, jinjaExplicit }: AttachedModel,
  metadata: ModelMetadata,
  vocabulary: Vocabulary,
): Promise<ChatTemplate | ServerError> {
  if (jinjaExplicit !== null)
    return new ChatTemplate(await loadTemplateOverride(jinjaExplicit, "jinja_explicit"), vocabulary);
  if (chatTemplate !== null)
    return new ChatTemplate(await loadTemplateOverride(chatTemplate, "chat_template"), vocabulary);
  try {
    return new ChatTemplate(modelTemplateSource(metadata.chatTemplates, metadata.tokenizer), vocabulary);
  } catch (error) {
    if (error instanceof ServerError) return error;
    throw error;
  }
}

function checkProbes(model: AttachedModel, vocabulary: Vocabulary): void {
  const { probes } = model.ready;
  if (probes === null) return;
  vocabularyProbes.forEach((text, i) => {
    const expected = probes[i] ?? new Int32Array(0);
    const got = vocabulary.encode(text);
    if (got.length === expected.length && got.every((token, k) => token === expected[k])) return;
    throw new ServerError(
      "model_file_invalid",
      `model "${model.id}" cannot be served: for ${JSON.stringify(text)} the engine's tokenizer gives ` +
        `[${expected.join(" ")}] and ours [${got.join(" ")}]; its tokenizer is not supported yet`,
    );
  });
}
