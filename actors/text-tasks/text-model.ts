// TextModel: the vocabulary, chat templates and limits of one model on a text worker. The tokenizer is implemented in TypeScript,
// because the native tokenizer recurses on some prompts until the process crashes. If the engine has a tokenizer, the results of
// both tokenizers are compared when the model is loaded.

import { audioParts } from "../../engines/audio-input/audio-tokens.ts";
import type { AudioSpec, ImageSpec } from "../../engines/engine.ts";
import { parseModelMetadata } from "../../engines/files/gguf/metadata.ts";
import type { ChatMessage, OpenRequest } from "../../engines/generation.ts";
import type { GrammarNotation } from "../../engines/grammar-source.ts";
import { imageParts } from "../../engines/image-input/image-tokens.ts";
import { frameTexts } from "../../engines/image-input/video/frame-texts.ts";
import { checkMedia } from "../../engines/media/check-media.ts";
import { mediaOf, type PreparedMedia, placeholders, type TileSpan } from "../../engines/media/media-tokens.ts";
import type { ToolFormat } from "../../engines/text/parse/tool-format.ts";
import {
  createVocabulary,
  type PromptText,
  type Vocabulary,
  vocabularyProbes,
} from "../../engines/text/tokenizer/vocabulary.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { AttachedModel, ModelFiles, ReasoningLimit } from "../messages.ts";
import { ChatTemplates } from "./chat-templates.ts";
import { InputEncoder } from "./input-encoder.ts";
import { PairEncoder } from "./pair-encoder.ts";
import { reasoningLimit } from "./reasoning-limit.ts";
import type { TextPhase } from "./text-phase.ts";

/** Fraction of the context that a truncated prompt may fill if the request sets no max_tokens. */
const truncatedPromptShare = 0.75;
/** Number of leading characters that are tokenized to find the prompt's first token. No first token is longer. */
const openingCharacters = 256;

/**
 * Data of a model that text workers need. The model's file is read only once, because it may have been deleted when a later
 * worker starts.
 */
export interface TextSource extends Pick<ModelFiles, "head" | "template" | "templateCapabilities"> {
  readonly id: string;
  readonly prompts?: AttachedModel["prompts"];
  readonly ready: Pick<AttachedModel["ready"], "capacity" | "capabilities" | "probes" | "images" | "audio"> & {
    readonly card: { readonly vocabSize: number };
  };
}

/** How to parse the output of a chat. Depends on the format of the chat template. */
export interface ChatPlan {
  readonly format: ToolFormat;
  /** Whether the prompt ends inside a reasoning section. */
  readonly opensThinking: boolean;
  /** Whether the prompt ends inside the content of an assistant message, which the output continues. */
  readonly continuesText: boolean;
  /** Ids of the control tokens that the parser of the output must receive as text. */
  readonly shownTokens: ReadonlySet<number>;
}

export interface PromptPlan {
  readonly prompt: Int32Array;
  /** Image tiles and audio windows in the prompt. */
  readonly tiles?: readonly TileSpan[];
  /** How to parse the output of a chat; null = the prompt is plain text. */
  readonly chat: ChatPlan | null;
}

/** How an input to embed is tokenized. */
export interface InputOptions {
  /** Whether to truncate an input that is too long. */
  readonly truncates: boolean;
  /** Input type of the text, such as `query`; undefined = the model's default. */
  readonly inputType?: string | undefined;
  /** Request field that contains the input, for error messages; absent = `input`. */
  readonly field?: string;
}

export class TextModel {
  readonly id: string;
  readonly vocabulary: Vocabulary;
  /** Maximum number of tokens of one sequence (prompt and output). */
  readonly sequenceTokens: number;
  /** Maximum number of tokens of one input to embed. Lower than the context length if an input must fit into one forward pass. */
  readonly inputLimit: number;
  /** Notation of the grammars that constrain the model's outputs. */
  readonly notation: GrammarNotation;
  /** Name of the setting that determines inputLimit, for error messages; empty = the context length determines it. */
  readonly #inputSetting: string;
  readonly #templates: ChatTemplates;
  readonly #pairs: PairEncoder;
  readonly #inputs: InputEncoder;
  /** Image input that the model accepts; null = none. */
  readonly #images: ImageSpec | null;
  readonly #audio: AudioSpec | null;
  #blankTokens: Int32Array | null = null;

  private constructor(
    id: string,
    vocabulary: Vocabulary,
    templates: ChatTemplates,
    pairs: PairEncoder,
    inputs: InputEncoder,
    { capacity, capabilities, images, audio }: TextSource["ready"],
  ) {
    this.#images = images ?? null;
    this.#audio = audio ?? null;
    this.id = id;
    this.vocabulary = vocabulary;
    this.sequenceTokens = capacity.sequenceTokens;
    this.notation = capabilities.grammar ?? "ebnf";
    this.inputLimit = capabilities.wholeSequences
      ? Math.min(capacity.sequenceTokens, capacity.maxBatchTokens)
      : capacity.sequenceTokens;
    const isStep = capabilities.wholeSequences && this.inputLimit === capacity.maxBatchTokens;
    this.#inputSetting = isStep ? " (max_num_batched_tokens)" : "";
    this.#templates = templates;
    this.#pairs = pairs;
    this.#inputs = inputs;
  }

  /** Creates the model. Throws `model_file_invalid` if the vocabulary or the template cannot be used. */
  static open(source: TextSource): TextModel {
    const metadata = parseModelMetadata(source.head);
    const vocabulary = createVocabulary(metadata.tokenizer);
    checkSize(source, vocabulary);
    checkProbes(source, vocabulary);
    const templates = ChatTemplates.open(source.template, metadata, vocabulary, source.templateCapabilities);
    const pairs = new PairEncoder(vocabulary, metadata.chatTemplates.get("rerank") ?? null);
    const isMultiVector = source.ready.capabilities.pooling === "tokens";
    const inputs = new InputEncoder({
      ...{ id: source.id, metadata, vocabulary, isMultiVector },
      prompts: source.prompts ?? null,
    });
    return new TextModel(source.id, vocabulary, templates, pairs, inputs, source.ready);
  }

  /**
   * Returns the tokens of the request's prompt. Throws `context_length_exceeded` if there are too many. If the number of bytes
   * already proves this, the error is thrown before rendering and tokenizing.
   */
  prompt(
    request: OpenRequest,
    enter: (phase: TextPhase) => void = () => {},
    media: readonly PreparedMedia[] = [],
  ): PromptPlan {
    enter("messages");
    const { prompt } = request;
    if (prompt.kind === "tokens") return { prompt: this.#givenTokens(prompt.tokens, request), chat: null };
    if (prompt.kind === "text") {
      const { text, suffix } = prompt;
      const tokens = suffix === undefined ? this.#promptTokens(text, request) : this.#infill(text, suffix, request);
      return { prompt: tokens, chat: null };
    }
    const { template, shownTokens } = this.#templates.for(request.tools !== null);
    if (!request.truncatePrompt) this.#checkBytes(leastBytes(prompt.messages, template.thinking !== null), request);
    const { messages, templateArguments, continuesLast = false } = prompt;
    const rendered = template.render(messages, templateArguments, request.tools?.specs ?? [], continuesLast);
    const { opensThinking } = rendered;
    const chat = {
      format: template.format,
      opensThinking,
      continuesText: continuesLast && !opensThinking,
      shownTokens,
    };
    const { mediaMarker } = rendered;
    if (mediaMarker === null) return { prompt: this.#promptTokens(rendered, request), chat };
    const keys = messages.flatMap((message) => (message.media ?? []).map(({ key }) => key));
    return { ...this.#withMedia({ ...rendered, mediaMarker }, keys, request, media), chat };
  }

  /**
   * Returns the tokens of a prompt with images, videos or audio. `keys`: keys of the media items, in the order in which their
   * markers occur in `text`.
   */
  #withMedia(
    { text, marker, mediaMarker }: PromptText & { readonly mediaMarker: string },
    keys: readonly string[],
    request: OpenRequest,
    media: readonly PreparedMedia[],
  ): Pick<PromptPlan, "prompt" | "tiles"> {
    const param = request.fields.prompt;
    this.#checkMedia(keys, media, param);
    if (request.truncatePrompt) {
      const message = "truncate_sequence cannot be combined with images, videos or audio; remove one of them";
      throw new ServerError("invalid_value", message, { param: "truncate_sequence" });
    }
    const texts = text.split(mediaMarker);
    if (texts.length !== keys.length + 1) {
      const message = `the model's chat template shows ${texts.length - 1} of ${keys.length} images, videos or audio parts; send fewer messages with them`;
      throw new ServerError("invalid_value", message, { param });
    }
    this.#checkBytes(Buffer.byteLength(text), request);
    const room = this.#roomFor(request);
    const tokens: number[] = [];
    const tiles: TileSpan[] = [];
    let pending = "";
    const encodePending = () => {
      // The beginning of the prompt may be an image.
      if (pending === "" && tokens.length > 0) return;
      const isFirst = tokens.length === 0;
      for (const token of this.vocabulary.encodePrompt({ text: pending, marker }, isFirst)) tokens.push(token);
      pending = "";
    };
    texts.forEach((text, i) => {
      pending += text;
      const key = keys[i];
      if (key === undefined) return;
      const found = mediaOf(media, key);
      if (found.length === 0)
        throw new ServerError(
          "invalid_value",
          "an image, a video or audio of an earlier request is missing; send it again",
          { param },
        );
      // The texts of frames are encoded with the text around them, as in transformers; the tags of other media alone, as in llama.cpp.
      const joins = found.some(({ seconds }) => seconds !== null);
      if (!joins) encodePending();
      for (const part of this.#partsOf(found)) {
        if (tokens.length > room) throw this.#tooLong(tokens.length, request, "at least ");
        if (typeof part === "string") {
          pending += part;
          if (!joins) encodePending();
        } else {
          encodePending();
          const from = tokens.length;
          for (const token of placeholders(part.item, part.tile)) tokens.push(token);
          tiles.push({ from, to: tokens.length, digest: part.item.digest, tile: part.tile });
        }
      }
    });
    encodePending();
    return { prompt: this.#fitting(Int32Array.from(tokens), room, request), tiles };
  }

  /**
   * Checks the number of media items. An image that is shown several times counts each time, because each occurrence takes space
   * in the context. A video counts as one image.
   */
  #checkMedia(keys: readonly string[], media: readonly PreparedMedia[], param: string): void {
    const audioKeys = new Set(media.flatMap(({ key, isAudio }) => (isAudio ? [key] : [])));
    const mentions = keys.map((key) => ({ param, ...(audioKeys.has(key) && { kind: "audio" as const }) }));
    checkMedia(mentions, { images: this.#images, audio: this.#audio }, this.id);
  }

  /**
   * Yields the parts of a prompt that stand for an image, an audio file, or the frames of a video: texts and tiles. checkMedia() has
   * checked that the model accepts the files.
   */
  *#partsOf(
    items: readonly PreparedMedia[],
  ): Generator<string | { readonly item: PreparedMedia; readonly tile: number }> {
    const times = items.flatMap(({ seconds }) => (seconds === null ? [] : [seconds]));
    const texts = times.length > 0 ? frameTexts((this.#images as ImageSpec).projector, times) : null;
    for (const [i, item] of items.entries()) {
      yield texts?.before[i] ?? "";
      const parts = item.isAudio
        ? audioParts((this.#audio as AudioSpec).projector, item.tiles.length)
        : imageParts(this.#images as ImageSpec, item);
      for (const part of parts) yield typeof part === "string" ? part : { item, tile: part };
    }
    yield texts?.after ?? "";
  }

  #promptTokens(prompt: PromptText | string, request: OpenRequest): Int32Array {
    const room = this.#roomFor(request);
    const tokens = request.truncatePrompt ? this.#truncated(prompt, request, room) : this.#encode(prompt, request);
    return this.#fitting(tokens, room, request);
  }

  /** Returns a prompt that the client sent as tokens. If it is too long and may be truncated, its first tokens are dropped. */
  #givenTokens(given: Int32Array, request: OpenRequest): Int32Array {
    const tokens = this.knownTokens(given, "prompt");
    const room = this.#roomFor(request);
    if (!request.truncatePrompt || tokens.length <= room) return this.#fitting(tokens, room, request);
    return tokens.slice(tokens.length - this.#keptTokens(request, room));
  }

  /** Returns the prompt tokens for generating text between `text` and `suffix`. Throws `unsupported` if the model has no infill tokens. */
  #infill(text: string, suffix: string, request: OpenRequest): Int32Array {
    const { infillTokens } = this.vocabulary;
    if (infillTokens === null) {
      const message = `suffix: model "${this.id}" has no infill tokens, so it cannot fill in text before a suffix; remove suffix, or choose a code model`;
      throw new ServerError("unsupported", message, { param: "suffix" });
    }
    this.#checkBytes(Buffer.byteLength(text) + Buffer.byteLength(suffix), request);
    return this.#fitting(this.vocabulary.encodeInfill(infillTokens, text, suffix), this.#roomFor(request), request);
  }

  #fitting(tokens: Int32Array, room: number, request: OpenRequest): Int32Array {
    if (tokens.length === 0) {
      throw new ServerError("invalid_value", "the prompt is empty; expected at least one token of text", {
        param: request.fields.prompt,
      });
    }
    if (tokens.length > room) throw this.#tooLong(tokens.length, request);
    return tokens;
  }

  /**
   * Returns the tokens of an input to embed, including the prefix or markers of its type. Throws `context_length_exceeded`, and
   * `invalid_value` for an unknown type, unknown tokens or an empty input.
   */
  inputTokens(input: string | Int32Array, options: InputOptions): Int32Array {
    const { truncates, inputType, field = "input" } = options;
    if (typeof input !== "string" && inputType !== undefined) throw typeOfTokens(inputType);
    const tokens = typeof input === "string" ? this.#textTokens(input, options) : this.knownTokens(input);
    if (tokens.length === 0) throw new ServerError("invalid_value", "an input has no tokens", { param: "input" });
    if (tokens.length <= this.inputLimit) return tokens;
    if (!truncates) throw this.#inputTooLong(tokens.length, field);
    const kept = tokens.slice(0, this.inputLimit);
    const { closingToken } = this.vocabulary;
    if (typeof input === "string" && closingToken !== null) kept[kept.length - 1] = closingToken;
    return kept;
  }

  /**
   * Returns the tokens of a document to score against a query. Throws `context_length_exceeded`, or `unsupported` if the model
   * has neither a template nor a separator token for such pairs.
   */
  pairTokens(query: string, document: string): Int32Array {
    const bytes = Buffer.byteLength(query) + Buffer.byteLength(document);
    const leastTokens = Math.ceil(bytes / this.vocabulary.longestPieceBytes);
    if (leastTokens > this.inputLimit) throw this.#pairTooLong(`${bytes} bytes, at least ${leastTokens} tokens`);
    const tokens = this.#pairs.encode(query, document);
    if (tokens.length > this.inputLimit) throw this.#pairTooLong(`${tokens.length} tokens`);
    return tokens;
  }

  #pairTooLong(came: string): ServerError {
    const message = `the query and a document are ${came}; model "${this.id}" takes ${this.inputLimit}${this.#inputSetting}; send shorter documents`;
    return new ServerError("context_length_exceeded", message, { param: "documents" });
  }

  /**
   * Returns a limit of `tokens` reasoning tokens after a prompt; null = no reasoning can follow the prompt. Throws
   * `unsupported` if a reasoning tag is not a single token.
   */
  reasoningBudget(tokens: number, prompt: Int32Array, { format, opensThinking }: ChatPlan): ReasoningLimit | null {
    return format.thinking === null ? null : reasoningLimit(this, format.thinking, tokens, prompt, opensThinking);
  }

  /** Tokens of white space. */
  get blankTokens(): Int32Array {
    const { size } = this.vocabulary;
    const isBlank = (token: number) => /^\s+$/.test(this.vocabulary.pieceText(token) ?? "");
    this.#blankTokens ??= Int32Array.from(Array.from({ length: size }, (_, token) => token).filter(isBlank));
    return this.#blankTokens;
  }

  #encode(prompt: PromptText | string, request: OpenRequest): Int32Array {
    this.#checkBytes(Buffer.byteLength(typeof prompt === "string" ? prompt : prompt.text), request);
    return this.#tokens(prompt);
  }

  /** Throws if the prompt alone must exceed the context, however it is tokenized. */
  #checkBytes(bytes: number, request: OpenRequest): void {
    const leastTokens = Math.ceil(bytes / this.vocabulary.longestPieceBytes);
    if (leastTokens >= this.sequenceTokens) throw this.#tooLong(leastTokens, request, "at least ");
  }

  #roomFor({ maxTokens, minTokens }: OpenRequest): number {
    return this.sequenceTokens - Math.max(maxTokens ?? minTokens, 1);
  }

  /**
   * Returns the last part of the prompt that fits. If the prompt begins with the model's BOS token, that token is kept, because
   * some models produce nonsense without it. Text that cannot be part of the result is cut off before tokenizing.
   */
  #truncated(prompt: PromptText | string, request: OpenRequest, room: number): Int32Array {
    const kept = this.#keptTokens(request, room);
    const { bosToken, longestPieceBytes } = this.vocabulary;
    const tokens = this.#tokens(sliced(prompt, -(kept + 1) * longestPieceBytes));
    if (tokens.length <= kept) return tokens;
    const end = tokens.slice(tokens.length - kept);
    const [first] = this.#tokens(sliced(prompt, 0, openingCharacters));
    if (bosToken !== null && first === bosToken && kept > 1) end[0] = bosToken;
    return end;
  }

  /** Returns the maximum length of a truncated prompt. */
  #keptTokens({ maxTokens }: OpenRequest, room: number): number {
    const share = maxTokens === null ? Math.floor(this.sequenceTokens * truncatedPromptShare) : room;
    return Math.max(Math.min(share, room), 1);
  }

  #tokens(prompt: PromptText | string): Int32Array {
    return typeof prompt === "string" ? this.vocabulary.encodeCompletion(prompt) : this.vocabulary.encodePrompt(prompt);
  }

  #textTokens(text: string, options: InputOptions): Int32Array {
    const { truncates, inputType, field = "input" } = options;
    const { longestPieceBytes } = this.vocabulary;
    const leastTokens = Math.ceil(Buffer.byteLength(text) / longestPieceBytes);
    if (!truncates && leastTokens > this.inputLimit) throw this.#inputTooLong(leastTokens, field, "at least ");
    // Text that cannot be part of the result is cut off before tokenizing.
    const read = truncates ? text.slice(0, (this.inputLimit + 1) * longestPieceBytes) : text;
    const tokens = this.vocabulary.encodeWhole(this.#inputs.prompted(read, inputType));
    return this.#inputs.marked(tokens, inputType, this.inputLimit);
  }

  /** Returns the input type for a query or a document in a comparison of vectors; undefined = the model does not distinguish them. */
  typeOf(role: "query" | "document"): string | undefined {
    return this.#inputs.typeOf(role);
  }

  /** Returns the tokens whose vectors are omitted from the output for texts of this type, if the model computes a vector per token. */
  skippedTokens(inputType?: string): readonly number[] {
    return this.#inputs.skipped(inputType);
  }

  /** Returns a copy of the tokens. Throws `invalid_value` with the name of the field if a token is not in the vocabulary. */
  knownTokens(tokens: Int32Array, param = "input"): Int32Array {
    const { size } = this.vocabulary;
    const unknown = tokens.find((token) => !(token >= 0 && token < size));
    if (unknown === undefined) return tokens.slice();
    const message = `expected tokens of model "${this.id}", 0 to ${size - 1}, got ${unknown}`;
    throw new ServerError("invalid_value", message, { param });
  }

  #inputTooLong(tokens: number, field: string, bound = ""): ServerError {
    const remedy = field === "input" ? "Reduce the length of the input or set truncate_sequence." : `Shorten ${field}.`;
    const message =
      `This model's maximum context length is ${this.inputLimit} tokens${this.#inputSetting}. However, you requested ${tokens} ` +
      `tokens (${bound}${tokens} in one ${field === "input" ? "input" : "text"}). ${remedy}`;
    return new ServerError("context_length_exceeded", message, { param: field });
  }

  /**
   * Returns the error for a prompt that is too long. `prompt`: number of tokens. `bound`: text before this number in the
   * message, such as "at least " if it is only a lower bound. The message uses OpenAI's wording, because clients search for it.
   */
  #tooLong(prompt: number, request: OpenRequest, bound = ""): ServerError {
    const { maxTokens, minTokens, fields } = request;
    const limit = this.sequenceTokens;
    const output = limit - this.#roomFor(request);
    const isLimited = (maxTokens ?? minTokens) > 0;
    const outputField = maxTokens === null && minTokens > 0 ? "min_tokens" : fields.maxTokens;
    const message =
      `This model's maximum context length is ${limit} tokens. However, you requested ${prompt + output} tokens ` +
      `(${bound}${prompt} in ${fields.prompt}, ${output} in the completion). ` +
      `Reduce the length of ${fields.prompt}${isLimited ? ` or ${outputField}` : ""}, or set truncate_sequence.`;
    return new ServerError("context_length_exceeded", message, {
      param: output >= limit ? outputField : fields.prompt,
      lengths: { limit, prompt, output: maxTokens === 0 ? null : maxTokens },
    });
  }
}

function typeOfTokens(inputType: string): ServerError {
  const message =
    `input_type: expected texts beside it, got tokens, which are embedded as they are; send texts, or leave out ` +
    `input_type ${JSON.stringify(inputType)}`;
  return new ServerError("invalid_value", message, { param: "input_type" });
}

/** Number of bytes of an escaped letter in JSON (\u0041), which the template may render as 1 byte. */
const longestEscape = 6;

/**
 * Returns a lower bound for the number of bytes of the rendered prompt, valid for any template. It counts the contents of
 * messages and the arguments of tool calls. If the template may omit reasoning of earlier turns (`dropsThoughts`), the contents
 * of assistant messages are not counted, because they may contain reasoning.
 */
function leastBytes(messages: readonly ChatMessage[], dropsThoughts: boolean): number {
  let bytes = 0;
  for (const { role, content, toolCalls = [] } of messages) {
    if (role !== "assistant" || !dropsThoughts) bytes += Buffer.byteLength(content.trim());
    for (const call of toolCalls) bytes += Math.floor(letterCount(call.arguments) / longestEscape);
  }
  return bytes;
}

/** Returns the number of ASCII letters and digits. */
function letterCount(text: string): number {
  let count = 0;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i) | 0x20;
    if ((code >= 0x61 && code <= 0x7a) || (code >= 0x30 && code <= 0x39)) count++;
  }
  return count;
}

/** Throws if the model does not have as many output weights as tokens, because it could then generate a token that has no text. */
function checkSize({ id, ready }: TextSource, { size }: Vocabulary): void {
  const { vocabSize } = ready.card;
  if (vocabSize === size) return;
  throw new ServerError(
    "model_file_invalid",
    `model "${id}" cannot be served: its file has ${size} tokens, but weights for ${vocabSize}; convert the model again`,
  );
}

function checkProbes(model: TextSource, vocabulary: Vocabulary): void {
  const { probes } = model.ready;
  // A tokenizer with the exact rules of a tokenizer.json is not checked: its results may differ from the engine's on purpose,
  // and the engine's tokenizer is not used.
  if (probes === null || vocabulary.isExact) return;
  vocabularyProbes.forEach((text, i) => {
    const expected = probes[i] === undefined ? new Int32Array(0) : probes[i];
    if (expected === null) return;
    const got = vocabulary.encode(text);
    if (got.length === expected.length && got.every((token, k) => token === expected[k])) return;
    throw new ServerError(
      "model_file_invalid",
      `model "${model.id}" cannot be served: for ${JSON.stringify(text)} the engine's tokenizer gives ` +
        `[${expected.join(" ")}] and ours [${got.join(" ")}]; its tokenizer is not supported yet`,
    );
  });
}

function sliced(prompt: PromptText | string, from: number, to?: number): PromptText | string {
  return typeof prompt === "string" ? prompt.slice(from, to) : { ...prompt, text: prompt.text.slice(from, to) };
}
