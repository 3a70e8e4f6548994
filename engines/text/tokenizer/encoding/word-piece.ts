// WordPiece encoder ("bert" vocabularies): normalizes text (lower case, accents), cuts it into words, and cuts each
// word into its longest pieces from left to right, by llama.cpp's rules. Created by encoding-plan.ts. Encoding loses
// case, accents and spaces.
import { absent, ByteTrie } from "../byte-trie.ts";
import { type Encoder, spaceSymbol } from "./encoders.ts";
import { laterCharacters } from "./later-characters.ts";
import { RememberedWords } from "./remembered-words.ts";
import { singleCharacters } from "./single-characters.ts";

interface WordPieceRules {
  readonly lowersCase: boolean;
  readonly stripsAccents: boolean;
  /** Token for a word that cannot be cut into pieces. */
  readonly unknown: number;
}

const unseen = String.raw`[\ufffd[[\p{Cc}\p{Cf}\p{Co}]--[\t-\r\u0085${laterCharacters}]]]`;
const marks = String.raw`[\p{M}--[${laterCharacters}]]`;

const spaces = String.raw`\t-\r \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000`;
// Ideographs, each of which is a word of its own. U+2B820 to U+2B91F are omitted, because llama.cpp omits them too.
export const ideographs = String.raw`\u4e00-\u9fff\u3400-\u4dbf\u{20000}-\u{2a6df}\u{2a700}-\u{2b81f}\u{2b920}-\u{2ceaf}\uf900-\ufaff\u{2f800}-\u{2fa1f}`;
// llama.cpp identifies ideographs only by their code point ranges, so ideographs added after Unicode 15.0 are
// included.
const alone = String.raw`[\p{P}--[${laterCharacters}]]$+<=>^${"`"}\|~${ideographs}`;
const words = new RegExp(`[${alone}]|[^${spaces}[${alone}]]+`, "gv");

export function wordPieceEncoder(ids: ReadonlyMap<string, number>, rules: WordPieceRules): Encoder {
  const trie = new ByteTrie();
  for (const [text, token] of ids) trie.add(Buffer.from(text, "utf8"), token);
  const simplify = simplifier(rules);
  const remembered = new RememberedWords((word) => longestPieces(trie, word) ?? [rules.unknown]);
  return (text, output) => {
    for (const [word] of simplify(text).matchAll(words)) remembered.append(word, output);
  };
}

/** Returns a function that converts to lower case and removes accents and invisible characters. */
function simplifier({ lowersCase, stripsAccents }: WordPieceRules): (text: string) => string {
  const removed = new RegExp(stripsAccents ? `${unseen}|${marks}` : unseen, "gv");
  const bare = singleCharacters((char) => (stripsAccents ? char.normalize("NFD") : char));
  const lower = singleCharacters((char) => (lowersCase ? char.toLowerCase() : char));
  const simplify = (part: string) => {
    if (part < "\x80") return lowersCase ? part.toLowerCase() : part;
    return lower(bare(part));
  };
  return (text) => text.replace(removed, "").replace(/[A-Z]+|[^\0-\x7f]/gu, simplify);
}

/** Cuts a word into its longest pieces from left to right. Returns null if a part of the word has no piece. */
function longestPieces(trie: ByteTrie, word: string): number[] | null {
  const bytes = Buffer.from(spaceSymbol + word, "utf8");
  const tokens: number[] = [];
  for (let start = 0; start < bytes.length; ) {
    let token = absent;
    let next = start;
    for (let node = 0, end = start; end < bytes.length; ) {
      node = trie.child(node, bytes[end++] as number);
      if (node === absent) break;
      if (trie.value(node) === absent) continue;
      token = trie.value(node);
      next = end;
    }
    if (token === absent) return null;
    tokens.push(token);
    start = next;
  }
  return tokens;
}
