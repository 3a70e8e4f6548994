// Input encoder: adds to an input what its model expects: the prompt of the input's type, or the markers and mask
// tokens of a ColBERT model. Created when a text worker opens a model.
import type { EmbeddingPrompts, MultiVectorRules } from "../../engines/files/embedding-rules.ts";
import type { ModelMetadata, TokenizerMetadata } from "../../engines/files/gguf/metadata.ts";
import { knownPrompts } from "../../engines/files/known-prompts.ts";
import { chooseMarker, type UserTextGuard } from "../../engines/text/template/user-text.ts";
import type { PromptText, Vocabulary } from "../../engines/text/tokenizer/vocabulary.ts";
import { ServerError } from "../../runtime/errors.ts";
import { guardOf } from "./pair-encoder.ts";

/** Names that clients of several services use for the same input type. */
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
  /** Id of the model, for messages. */
  readonly id: string;
  readonly metadata: ModelMetadata;
  readonly vocabulary: Vocabulary;
  /** Configured prompts; null: those of the model. */
  readonly prompts: Readonly<Record<string, string>> | null;
  /** Whether the model has a vector for each token. */
  readonly isMultiVector: boolean;
}

export class InputEncoder {
  readonly #id: string;
  readonly #vocabulary: Vocabulary;
  readonly #prompts: EmbeddingPrompts | null;
  /** Null: the model is not a ColBERT model. */
  readonly #markers: Markers | null;
  /** Guard against control tokens in texts behind a prompt that has some. Created at first use, because most prompts have none. */
  #guard: UserTextGuard | null = null;

  /** Throws `model_file_invalid` if the vocabulary lacks a marker, and `config_invalid` for prompts beside markers. */
  constructor({ id, metadata, vocabulary, prompts, isMultiVector }: InputEncoderOptions) {
    this.#id = id;
    this.#vocabulary = vocabulary;
    const { multiVector } = metadata;
    this.#markers = isMultiVector && multiVector !== null ? markersOf(id, metadata.tokenizer, multiVector) : null;
    if (this.#markers !== null && prompts !== null) throw promptsBesideMarkers(id);
    this.#prompts = prompts === null ? promptsOf(metadata) : configured(prompts, metadata.prompts);
  }

  /**
   * Returns a text with the prompt of its type. Names of control tokens in the prompt are these tokens, those in the text are
   * not. Throws `unsupported` or `invalid_value`.
   */
  prompted(text: string, inputType: string | undefined): string | PromptText {
    const prompt = this.#markers === null ? this.#promptOf(inputType) : "";
    const vocabulary = this.#vocabulary;
    if (vocabulary.controlNamesIn(prompt).length === 0) return `${prompt}${text}`;
    this.#guard ??= guardOf(vocabulary);
    const marker = chooseMarker([prompt, text]);
    return { text: `${prompt}${this.#guard.guard(text, marker)}`, marker };
  }

  /** Returns the tokens of a text with the markers of its type, filled up to `most` tokens at most. Throws `invalid_value`. */
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

  /** Returns the input type of a query or of the documents that it is compared with; undefined: the model has no such types. */
  typeOf(role: "query" | "document"): string | undefined {
    return this.#markers !== null || this.#takesRoles ? role : undefined;
  }

  /** Returns the tokens whose vectors are left out of the texts of a type. */
  skipped(inputType: string | undefined): readonly number[] {
    return this.#markers === null || this.#role(inputType) === "query" ? [] : this.#markers.skipped;
  }

  /**
   * Whether `query` and `document` are types of the model. One of them without a prompt is a text without one; so are both, if the
   * model names no prompts. Models whose prompts have other names may mean one of these.
   */
  get #takesRoles(): boolean {
    const names = Object.keys(this.#prompts?.texts ?? {});
    return names.length === 0 || roles.some((role) => nameOf(role, names) !== undefined);
  }

  /** Returns the prompt of a type. Throws `unsupported` or `invalid_value`. */
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

  /** Returns the name among `names` that means the type. Throws `invalid_value` with all names. */
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

/** Returns the name that means an input type: the same, in other letters, or a synonym. */
function nameOf(inputType: string, names: readonly string[]): string | undefined {
  const asked = inputType.toLowerCase();
  const meant = synonyms.find((group) => group.includes(asked)) ?? [];
  return (
    names.find((name) => name === inputType) ??
    names.find((name) => name.toLowerCase() === asked) ??
    names.find((name) => meant.includes(name.toLowerCase()))
  );
}

/** Texts of the settings replace those of the file; the file says which is the default one, if they have its name. */
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

/** If all prompts in the file are empty, its author may have set none, so the table of known models is used. */
function promptsOf({ prompts, architecture, name, path }: ModelMetadata): EmbeddingPrompts | null {
  const isNamed = prompts !== null && Object.values(prompts.texts).some((text) => text !== "");
  return isNamed ? prompts : (knownPrompts(architecture, name, path) ?? prompts);
}

function markersOf(id: string, tokenizer: TokenizerMetadata, rules: MultiVectorRules): Markers {
  const { queryMarker, documentMarker, queryTokens, skipped } = rules;
  const find = (name: string): number | null => {
    // A vocabulary of WordPiece in GGUF marks the pieces that begin a word.
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
