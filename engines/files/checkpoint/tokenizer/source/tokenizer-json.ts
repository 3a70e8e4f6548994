// Content of a tokenizer.json: its model, its added tokens and its steps before and after the model. Sequences of steps are flattened.
// Everything that all kinds of models have in common is checked here.
import { isRecord, type JsonField } from "../../../json-field.ts";

/** Maximum number of tokens. The largest vocabularies in use have 262,144. */
export const maxTokens = 2 ** 20;
/** Maximum length of a token in characters. The longest in use have a few hundred. */
const maxTokenLength = 4096;
const maxDepth = 8;
const maxSteps = 64;

export interface AddedToken {
  readonly id: number;
  readonly text: string;
  readonly isSpecial: boolean;
  /** Whether the token is searched in normalized text. */
  readonly isNormalized: boolean;
  /** Rules that apply to the text next to the token: "lstrip", "rstrip", "single_word". */
  readonly rules: readonly string[];
}

export interface TokenizerJson {
  readonly root: JsonField;
  readonly model: JsonField;
  /** Type of the model: "BPE", "Unigram", "WordPiece" and others. */
  readonly kind: string;
  readonly added: readonly AddedToken[];
  readonly normalizers: readonly JsonField[];
  readonly preTokenizers: readonly JsonField[];
  readonly postProcessors: readonly JsonField[];
}

export function parseTokenizerJson(root: JsonField): TokenizerJson {
  const model = root.get("model");
  model.required(model.record());
  return {
    root,
    model,
    kind: model.get("type").text() ?? guessKind(model),
    added: root
      .get("added_tokens")
      .elements(maxTokens)
      .map((field) => addedToken(field, field.get("id"))),
    normalizers: flatten(root.get("normalizer"), "normalizers"),
    preTokenizers: flatten(root.get("pre_tokenizer"), "pretokenizers"),
    postProcessors: flatten(root.get("post_processor"), "processors"),
  };
}

/** Returns the type of a step, such as "ByteLevel". */
export function typeOf(step: JsonField): string {
  const type = step.get("type");
  return type.required(type.text());
}

/** Returns the token ids of `model.vocab`, an object with an id for each text. */
export function vocabularyOf({ model }: TokenizerJson): Map<string, number> {
  const field = model.get("vocab");
  const ids = new Map<string, number>();
  const entries = Object.entries(field.required(field.record()));
  if (entries.length > maxTokens) throw field.invalid(`has ${entries.length} tokens; at most ${maxTokens} are read`);
  for (const [text, id] of entries) {
    if (typeof id !== "number" || !Number.isInteger(id) || id < 0 || id >= maxTokens) {
      throw field.get(text).invalid(`is not a token id; expected a whole number below ${maxTokens}`);
    }
    if (text.length > maxTokenLength) {
      throw field.get(text).invalid(`has ${text.length} characters; at most ${maxTokenLength} are possible`);
    }
    ids.set(text, id);
  }
  return ids;
}

/** Files before version 0.10 of the library name no type. */
function guessKind(model: JsonField): string {
  if (!model.get("merges").isAbsent) return "BPE";
  throw model.get("type").invalid("is missing; expected BPE, Unigram or WordPiece");
}

/** Reads an added token. `id`: the field with its id. */
export function addedToken(field: JsonField, id: JsonField): AddedToken {
  const text = field.get("content");
  const isOn = (key: string) => field.get(key).flag() ?? false;
  const isSpecial = isOn("special");
  return {
    id: id.required(id.count(maxTokens - 1)),
    text: text.required(text.text()),
    isSpecial,
    isNormalized: field.get("normalized").flag() ?? !isSpecial,
    rules: ["lstrip", "rstrip", "single_word"].filter(isOn),
  };
}

/** Returns the steps of a field that has one step, a "Sequence" of steps, or none. `key`: name of the list of steps in a sequence. */
function flatten(field: JsonField, key: string): JsonField[] {
  const steps: JsonField[] = [];
  const visit = (step: JsonField, depth: number): void => {
    if (step.isAbsent) return;
    if (!isRecord(step.value)) throw step.invalid("is not a step; expected an object with a type");
    if (typeOf(step) !== "Sequence") steps.push(step);
    else if (depth === maxDepth) throw step.invalid(`is nested more than ${maxDepth} levels deep`);
    else for (const inner of step.get(key).elements(maxSteps)) visit(inner, depth + 1);
    if (steps.length > maxSteps) throw field.invalid(`has more than ${maxSteps} steps`);
  };
  visit(field, 0);
  return steps;
}
