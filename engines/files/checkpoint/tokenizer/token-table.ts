// Token table: text, type and score of every token by id, for the keys of a GGUF file. llama.cpp ends the process if two
// tokens have the same text, so the table refuses that.
import { ServerError } from "../../../../runtime/errors.ts";
import { endNames } from "../../gguf/end-of-generation.ts";
import { quoted } from "../../json-field.ts";
import type { AddedToken } from "./source/tokenizer-json.ts";
import { keyPrefix, type Pairs } from "./token-pairs.ts";

/** Token types of GGUF. */
export const tokenTypes = { normal: 1, unknown: 2, control: 3, userDefined: 4, unused: 5, byte: 6 } as const;

/**
 * Receives a difference between the resulting tokenizer and the folder's tokenizer. `remains`: the difference also exists with exact rules
 * (exact-rules.ts); other differences concern only llama.cpp's tokenizer.
 */
export type Warn = (difference: string, remains?: boolean) => void;

export const spaceSymbol = "\u2581";

/** Returns a token's text with spaces in place of U+2581, as it occurs in a text. */
export function withSpaces(text: string): string {
  return text.replaceAll(spaceSymbol, " ");
}

/** Score of tokens that no merge makes, as in llama.cpp's converter. */
const addedScore = -1000;
const unusedScore = -10_000;

export class TokenTable {
  /** Name of the file in errors. */
  readonly #file: string;
  readonly #texts: (string | undefined)[];
  readonly #types: number[];
  readonly #scores: number[];

  /** `size`: number of tokens. */
  constructor(file: string, size: number) {
    this.#file = file;
    this.#texts = new Array(size).fill(undefined);
    this.#types = new Array(size).fill(tokenTypes.unused);
    this.#scores = new Array(size).fill(unusedScore);
  }

  get size(): number {
    return this.#texts.length;
  }

  /** Sets a token of the vocabulary. Throws `model_file_invalid` if the model has no such id. */
  set(id: number, text: string, type: number, score = 0): void {
    if (id >= this.size) {
      throw this.#invalid(
        `token ${id} (${quoted(text)}) does not exist in a model of ${this.size} tokens; name the model's own tokenizer`,
      );
    }
    this.#texts[id] = text.replace(/\p{Surrogate}/gu, "\ufffd");
    this.#types[id] = type;
    this.#scores[id] = score;
  }

  /** Sets an added token. `spells` converts the text of a normal token to its spelling in the table. Ignores ids that the model lacks. */
  setAdded(token: AddedToken, warn: Warn, spells: (text: string) => string = (text) => text): void {
    const { id, text, isSpecial } = token;
    if (id >= this.size) {
      warn(`the added token ${quoted(text)} is left out: its id ${id} is beyond the model's ${this.size} tokens`, true);
      return;
    }
    if (isSpecial || looksSpecial(text)) this.set(id, text, tokenTypes.control, addedScore);
    else this.set(id, spells(text), tokenTypes.userDefined, addedScore);
  }

  /** Changes the texts of tokens of some types. */
  respell(types: readonly number[], spell: (text: string) => string): void {
    this.#texts.forEach((text, id) => {
      if (text !== undefined && types.includes(this.#types[id] as number)) this.#texts[id] = spell(text);
    });
  }

  /** Adds the keys of the table to `pairs`. Ids without a token get a name, and are never used. */
  write(pairs: Pairs, hasScores: boolean): void {
    const known = new Set(this.#texts);
    const texts = this.#texts.map((text, id) => text ?? fillerName(id, known));
    this.#refuseTwins(texts);
    pairs.set(`${keyPrefix}tokens`, { type: "array", of: "string", value: texts });
    pairs.set(`${keyPrefix}token_type`, { type: "array", of: "i32", value: this.#types });
    if (hasScores) pairs.set(`${keyPrefix}scores`, { type: "array", of: "f32", value: this.#scores });
  }

  #refuseTwins(texts: readonly string[]): void {
    const ids = new Map<string, number>();
    texts.forEach((text, id) => {
      // llama.cpp reads a text up to its first zero byte, and renames tokens without a text.
      const seen = text.split("\0", 1)[0] || `[EMPTY_${id}]`;
      const twin = ids.get(seen);
      if (twin !== undefined) throw this.#invalid(`tokens ${twin} and ${id} have the same text ${quoted(seen)}`);
      ids.set(seen, id);
    });
  }

  #invalid(problem: string): ServerError {
    return new ServerError("model_file_invalid", `${this.#file}: ${problem}`);
  }
}

function fillerName(id: number, known: ReadonlySet<string | undefined>): string {
  let name = `[PAD${id}]`;
  while (known.has(name)) name += "_";
  return name;
}

/** True for added tokens that many files do not mark as special, though they are. The list is llama.cpp's. */
function looksSpecial(text: string): boolean {
  if (["<pad>", "<mask>", "<2mass>", "[@BOS@]"].includes(text)) return true;
  return /^<\|.*\|>$|^<｜.*｜>$|^<unused.*>$/s.test(text);
}

/** Warns about the rules of added tokens that GGUF has no key for. */
export function warnOfRules(added: readonly AddedToken[], warn: Warn): void {
  const ruled = added.filter(({ rules }) => rules.length > 0);
  const texts = ruled.map(({ text, rules }) => `${quoted(text)} (${rules.join(", ")})`);
  if (texts.length > 0) warn(`the text beside these added tokens is not stripped or checked: ${firstOf(texts)}`);
}

/** Warns about added tokens that the library searches only after spaces were written as U+2581. */
export function warnOfNormalized(added: readonly AddedToken[], warn: Warn): void {
  const texts = added.filter(({ isNormalized }) => isNormalized).map(({ text }) => quoted(text));
  if (texts.length > 0) warn(`these added tokens are found anywhere, not only where a word begins: ${firstOf(texts)}`);
}

/** Warns about ordinary tokens with the name of an end token: llama.cpp uses them only to end a generation. */
export function warnOfEnds(names: Iterable<string>, added: readonly AddedToken[], warn: Warn): void {
  const known = new Set(added.map(({ text }) => text));
  const texts = [...names].filter((name) => endNames.has(name) && !known.has(name)).map(quoted);
  if (texts.length > 0)
    warn(`these tokens only end a generation, and are never found in a text: ${firstOf(texts)}`, true);
}

function firstOf(texts: readonly string[]): string {
  const shown = texts.slice(0, 3).join(", ");
  return texts.length > 3 ? `${shown} and ${texts.length - 3} more` : shown;
}
