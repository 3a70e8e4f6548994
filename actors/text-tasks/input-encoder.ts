// Input encoder: adds what the model expects to an input to embed: the prompt prefix of the input's type, or the marker and mask
// tokens of a ColBERT model. Created when a text worker opens a model.
import type { EmbeddingPrompts, MultiVectorRules } from "../../engines/files/embedding-rules.ts";
import type { ModelMetadata, TokenizerMetadata } from "../../engines/files/gguf/metadata.ts";
import { knownPrompts } from "../../engines/files/known-prompts.ts";
import { chooseMarker, type UserTextGuard } from "../../engines/text/template/user-text.ts";
import type { PromptText, Vocabulary } from "../../engines/text/tokenizer/vocabulary.ts";
import { ServerError } from "../../runtime/errors.ts";
import { guardOf } from "./pair-encoder.ts";

/** Groups of names that mean the same input type, because clients of different services use different names. */
const synonyms: readonly (readonly string[])[] = [
  ["query", "search_query", "retrieval.query", "retrieval_query"],
  ["document", "passage", "corpus", "search_document", "retrieval.passage", "retrieval_document"],
];
const roles = ["query", "document"];

interface Markers {
  readonly query: number | null;
  readonly document: number | null;
  readonly mask: number | null;
  readonly queryTokens: number;
  readonly skipped: readonly number[];
}

export interface InputEncoderOptions {
  /** Id of the model, for error messages. */
  readonly id: string;
  readonly metadata: ModelMetadata;
  readonly vocabulary: Vocabulary;
  /** Configured prompt prefixes, by input type; null = use those of the model. */
  readonly prompts: Readonly<Record<string, string>> | null;
  /** Whether the model computes a vector per token. */
  readonly isMultiVector: boolean;
}

export class InputEncoder {
  readonly #id: string;
  readonly #vocabulary: Vocabulary;
  readonly #prompts: EmbeddingPrompts | null;
  /** Marker tokens; null = not a ColBERT model. */
  readonly #markers: Markers | null;
  /**
   * Guard against control tokens in texts, needed if the prompt prefix contains control tokens. Created at first use, because
   * most prefixes contain none.
   */
  #guard: UserTextGuard | null = null;

  /**
   * Throws `model_file_invalid` if the vocabulary lacks a marker token, and `config_invalid` if prompts are configured for a
   * model with markers.
   */
  constructor({ id, metadata, vocabulary, prompts, isMultiVector }: InputEncoderOptions) {
    this.#id = id;
    this.#vocabulary = vocabulary;
    const { multiVector } = metadata;
    this.#markers = isMultiVector && multiVector !== null ? markersOf(id, metadata.tokenizer, multiVector) : null;
    if (this.#markers !== null && prompts !== null) throw promptsBesideMarkers(id);
    this.#prompts = prompts === null ? promptsOf(metadata) : configured(prompts, metadata.prompts);
  }

  /**
   * Returns a text with the prompt prefix of its type. Names of control tokens in the prefix become control tokens; names in the
   * text do not. Throws `unsupported` or `invalid_value`.
   */
  prompted(text: string, inputType: string | undefined): string | PromptText {
    const prompt = this.#markers === null ? this.#promptOf(inputType) : "";
    const vocabulary = this.#vocabulary;
    if (vocabulary.controlNamesIn(prompt).length === 0) return `${prompt}${text}`;
    this.#guard ??= guardOf(vocabulary);
    const marker = chooseMarker([prompt, text]);
    return { text: `${prompt}${this.#guard.guard(text, marker)}`, marker };
  }

  /**
   * Returns the tokens of a text with the marker of its type. A query is padded with mask tokens, but not beyond `most` tokens.
   * Throws `invalid_value`.
   */
  marked(tokens: Int32Array, inputType: string | undefined, most: number): Int32Array {
    if (this.#markers === null) return tokens;
    const { query, document, mask, queryTokens } = this.#markers;
    const isQuery = this.#role(inputType) === "query";
    const marker = isQuery ? query : document;
    const at = tokens[0] === this.#vocabulary.bosToken ? 1 : 0;
    const head = marker === null ? [...tokens] : [...tokens.subarray(0, at), marker, ...tokens.subarray(at)];
    const length = Math.max(head.length, Math.min(isQuery && mask !== null ? queryTokens : 0, most));
    const marked = new Int32Array(length).fill(mask ?? 0);
    marked.set(head);
    return marked;
  }

  /** Returns the input type for a query or a document in a comparison of vectors; undefined = the model does not distinguish them. */
  typeOf(role: "query" | "document"): string | undefined {
    return this.#markers !== null || this.#takesRoles ? role : undefined;
  }

  /** Returns the tokens whose vectors are omitted from the output, for texts of this type. */
  skipped(inputType: string | undefined): readonly number[] {
    return this.#markers === null || this.#role(inputType) === "query" ? [] : this.#markers.skipped;
  }

  /**
   * Whether the model has the input types `query` and `document`. True if it has a prompt for at least one of them, or no prompts
   * at all; a type without a prompt gets no prefix. False if all its prompts have other names, because it is unknown which of
   * them means query or document.
   */
  get #takesRoles(): boolean {
    const names = Object.keys(this.#prompts?.texts ?? {});
    return names.length === 0 || roles.some((role) => nameOf(role, names) !== undefined);
  }

  /** Returns the prompt prefix of an input type. Throws `unsupported` or `invalid_value`. */
  #promptOf(inputType: string | undefined): string {
    const { texts = {}, fallback = null } = this.#prompts ?? {};
    if (inputType === undefined) return fallback === null ? "" : (texts[fallback] as string);
    const names = Object.keys(texts);
    const isUnnamedRole =
      this.#takesRoles && nameOf(inputType, roles) !== undefined && nameOf(inputType, names) === undefined;
    if (isUnnamedRole) return "";
    if (names.length === 0) throw this.#noPrompts(inputType);
    return texts[this.#named(inputType, names)] as string;
  }

  #role(inputType: string | undefined): string {
    return inputType === undefined ? "document" : this.#named(inputType, roles);
  }

  /** Returns the element of `names` that matches the input type. Throws `invalid_value` with a list of all names. */
  #named(inputType: string, names: readonly string[]): string {
    const found = nameOf(inputType, names);
    if (found !== undefined) return found;
    const listed = names.map((name) => JSON.stringify(name)).join(", ");
    const message = `input_type: model "${this.#id}" expects one of ${listed}; got ${JSON.stringify(inputType)}`;
    throw new ServerError("invalid_value", message, { param: "input_type" });
  }

  #noPrompts(inputType: string): ServerError {
    const message =
      `input_type: model "${this.#id}" names no prompts, so it is unknown what ${JSON.stringify(inputType)} means; send query or ` +
      "document, leave out input_type, or set the model's prompts in the configuration " +
      '(prompts = { query = "…", document = "…" })';
    return new ServerError("unsupported", message, { param: "input_type" });
  }
}

/** Returns the name that matches an input type: exactly, ignoring case, or as a synonym; undefined = no match. */
function nameOf(inputType: string, names: readonly string[]): string | undefined {
  const asked = inputType.toLowerCase();
  const meant = synonyms.find((group) => group.includes(asked)) ?? [];
  return (
    names.find((name) => name === inputType) ??
    names.find((name) => name.toLowerCase() === asked) ??
    names.find((name) => meant.includes(name.toLowerCase()))
  );
}

/**
 * Returns the prompts of the settings, which replace those of the model's file. The input type that the file uses by default stays the
 * default if the settings have a prompt for it; otherwise inputs without a type get no prompt.
 */
function configured(texts: EmbeddingPrompts["texts"], ofFile: EmbeddingPrompts | null): EmbeddingPrompts {
  const fallback = ofFile?.fallback ?? null;
  return { texts, fallback: fallback !== null && Object.hasOwn(texts, fallback) ? fallback : null };
}

function promptsBesideMarkers(id: string): ServerError {
  const message =
    `prompts: model "${id}" is a ColBERT model, which expects markers and no texts before its inputs; ` +
    "remove prompts from its [models.embedding]";
  return new ServerError("config_invalid", message, { param: "prompts" });
}

/**
 * Returns the model's own prompts. If all prompts in the file are empty, the author may have set none, so the table of known
 * models is used.
 */
function promptsOf({ prompts, architecture, name, path }: ModelMetadata): EmbeddingPrompts | null {
  const isNamed = prompts !== null && Object.values(prompts.texts).some((text) => text !== "");
  return isNamed ? prompts : (knownPrompts(architecture, name, path) ?? prompts);
}

function markersOf(id: string, tokenizer: TokenizerMetadata, rules: MultiVectorRules): Markers {
  const { queryMarker, documentMarker, queryTokens, skipped } = rules;
  const find = (name: string): number | null => {
    // In GGUF, a WordPiece vocabulary marks pieces at the beginning of a word with U+2581.
    const names = tokenizer.model === "bert" ? [`\u2581${name}`, name] : [name];
    const token = names.map((one) => tokenizer.tokens.indexOf(one)).find((index) => index >= 0);
    return token ?? null;
  };
  const marker = (name: string | null): number | null => {
    const token = name === null ? null : find(name);
    if (name === null || token !== null) return token;
    const message = `the vocabulary of model "${id}" has no token ${JSON.stringify(name)}, the marker of its queries or documents; convert the model again`;
    throw new ServerError("model_file_invalid", message);
  };
  return {
    query: marker(queryMarker),
    document: marker(documentMarker),
    mask: tokenizer.maskId ?? null,
    queryTokens,
    skipped: skipped.flatMap((word) => find(word) ?? []),
  };
}
