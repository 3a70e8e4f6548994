// CLIP tokenizer: byte-pair encoding in which the end of a word is part of its last symbol. GGUF has no such vocabulary, so
// engines/text has no encoder for it. Control tokens in a prompt are plain text.
import { ServerError } from "../../runtime/errors.ts";
import { TokenizerFolder } from "../files/checkpoint/tokenizer/source/tokenizer-folder.ts";
import type { JsonField } from "../files/json-field.ts";
import { spellBytes } from "../text/tokenizer/byte-alphabet.ts";
import { mergeSymbols, type PairRank } from "../text/tokenizer/encoding/merge.ts";

const endOfWord = "</w>";
/** Placeholder for `</w>` while the symbols of a word are merged: one character, which is not in the byte alphabet. */
const endMark = "\ue000";
const maxTokens = 1_000_000;
/** Number of tokens that CLIP's text encoders read. Used if tokenizer_config.json names no limit, or a limit above `mostLength`. */
const usualLength = 77;
const mostLength = 1024;

const words = /'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+/gu;

export class ClipTokenizer {
  /** Number of tokens that encode() returns. */
  readonly length: number;
  readonly #ids: ReadonlyMap<string, number>;
  readonly #rank: PairRank;
  readonly #begin: number;
  readonly #end: number;
  readonly #pad: number;
  readonly #unknown: number;

  private constructor(ids: ReadonlyMap<string, number>, merges: ReadonlyMap<string, number>, config: JsonField) {
    this.#ids = ids;
    this.#rank = (text, start, middle, end) => {
      const [left, right] = [text.slice(start, middle), text.slice(middle, end)];
      // The end mark is merged with the last character before all other merges.
      if (right === endMark) return left.length === 1 ? -1 : Number.POSITIVE_INFINITY;
      return merges.get(`${left} ${right}`) ?? Number.POSITIVE_INFINITY;
    };
    this.#begin = this.#special(config, "bos_token", "<|startoftext|>");
    this.#end = this.#special(config, "eos_token", "<|endoftext|>");
    this.#pad = this.#special(config, "pad_token", "<|endoftext|>");
    this.#unknown = this.#special(config, "unk_token", "<|endoftext|>");
    const length = config.get("model_max_length").number() ?? usualLength;
    // The config of a tokenizer without a limit has an enormous number as the limit.
    this.length = length > mostLength ? usualLength : length;
    if (!Number.isInteger(this.length) || this.length < 3) {
      throw config.get("model_max_length").invalid(`is ${length}; expected a whole number from 3`);
    }
  }

  /** Reads vocab.json, merges.txt and tokenizer_config.json of a folder. Throws model_file_invalid. */
  static async open(path: string): Promise<ClipTokenizer> {
    const folder = await TokenizerFolder.open(path);
    const [vocabulary, merges, config] = await Promise.all([
      folder.json("vocab.json"),
      folder.text("merges.txt"),
      folder.json("tokenizer_config.json"),
    ]);
    for (const [name, content] of Object.entries({
      "vocab.json": vocabulary,
      "merges.txt": merges,
      "tokenizer_config.json": config,
    })) {
      if (content === null) throw new ServerError("model_file_invalid", `${path} has no ${name}, which CLIP needs`);
    }
    return new ClipTokenizer(idsOf(vocabulary as JsonField), ranksOf(merges as string), config as JsonField);
  }

  /**
   * Returns `length` tokens: the begin token, the tokens of the text, the end token, padding. `used`: number of tokens without padding. A
   * text that is too long is cut if `truncates`; otherwise invalid_value is thrown for the field `param`.
   */
  encode(text: string, truncates: boolean, param: string): { readonly tokens: Int32Array; readonly used: number } {
    const found = this.#encodeText(text);
    const room = this.length - 2;
    if (found.length > room && !truncates) {
      const message = `expected at most ${room} tokens, which the model can read; got ${found.length}: shorten it, or send truncate_sequence`;
      throw new ServerError("invalid_value", message, { param });
    }
    const kept = found.slice(0, room);
    const tokens = new Int32Array(this.length).fill(this.#pad);
    tokens.set([this.#begin, ...kept, this.#end]);
    return { tokens, used: kept.length + 2 };
  }

  #encodeText(text: string): number[] {
    const output: number[] = [];
    const plain = text.normalize("NFC").replaceAll(/\s+/g, " ").toLowerCase();
    for (const [word] of plain.matchAll(words)) {
      const symbols = spellBytes(word) + endMark;
      mergeSymbols(symbols, this.#rank, (start, end) => {
        output.push(this.#ids.get(symbols.slice(start, end)) ?? this.#unknown);
      });
    }
    return output;
  }

  #special(config: JsonField, key: string, otherwise: string): number {
    const field = config.get(key);
    // A token is a string, or an object whose field `content` is the string.
    const text = (typeof field.value === "object" ? field.get("content") : field).text() ?? otherwise;
    const id = this.#ids.get(text);
    if (id !== undefined) return id;
    throw field.invalid(`is ${JSON.stringify(text.slice(0, 64))}, which is not in the vocabulary`);
  }
}

function idsOf(vocabulary: JsonField): Map<string, number> {
  const entries = Object.keys(vocabulary.required(vocabulary.record()));
  if (entries.length > maxTokens)
    throw vocabulary.invalid(`has ${entries.length} tokens; at most ${maxTokens} are read`);
  return new Map(
    entries.map((token) => {
      const field = vocabulary.get(token);
      const id = field.required(field.count(maxTokens));
      return [token.endsWith(endOfWord) ? token.slice(0, -endOfWord.length) + endMark : token, id] as const;
    }),
  );
}

function ranksOf(merges: string): Map<string, number> {
  const lines = merges.split(/\r?\n/).filter((line) => line !== "" && !line.startsWith("#version"));
  return new Map(lines.map((line, rank) => [line.replaceAll(endOfWord, endMark), rank] as const).reverse());
}
