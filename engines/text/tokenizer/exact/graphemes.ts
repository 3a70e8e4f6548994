// Grapheme replacement: replaces graphemes by the compiled character map of a Unigram vocabulary, as Hugging Face's
// tokenizers package does. JavaScript's segmenter takes quadratic time, so it gets short pieces of a text, cut at
// positions where a grapheme certainly ends.
import type { CharactersMap } from "../encoding/characters-map.ts";

const segmenter = new Intl.Segmenter("en", { granularity: "grapheme" });
/** Maximum number of UTF-8 bytes of a grapheme that is replaced as a whole. */
const longestGrapheme = 5;
/**
 * Piece lengths in code units. A piece ends at the first safe cut after `usualPiece` units, and always after
 * `longestPiece`.
 */
const [usualPiece, longestPiece] = [128, 4096];
const capacity = 16_384;

/** Characters that certainly form no grapheme with another such character before or after them. */
const alone = String.raw`[\x20-\x7e]|(?![\u1100-\u11ff\u3099\u309a\uff9e\uff9f])[\p{L}&&[\p{sc=Latn}\p{sc=Grek}\p{sc=Cyrl}\p{sc=Hani}\p{sc=Hira}\p{sc=Kana}\p{sc=Arab}\p{sc=Hebr}\uac00-\ud7a3\u0e01-\u0e30]]`;
const border = new RegExp(String.raw`(?<=${alone})(?=${alone})|(?<=[ \n])(?=[\p{L}\p{N}])`, "gv");
const asciiCharacter = /\r\n|./gs;
const onlyAscii = /^[\0-\x7f]*$/;

/**
 * Returns a function that replaces the graphemes of a text. A short grapheme is replaced by the replacement of its
 * shortest prefix that has one. A long grapheme, or one without a replacement, is replaced character by character.
 */
export function graphemeReplacer(map: CharactersMap): (text: string) => string {
  /** Replacement of each grapheme; the grapheme itself if it has none. Cleared when full. */
  const known = new Map<string, string>();
  const replace = (text: string): string | null => map.shortest(Buffer.from(text, "utf8"));
  const replacement = (grapheme: string): string => {
    let found = known.get(grapheme);
    if (found === undefined) {
      const whole = Buffer.byteLength(grapheme, "utf8") <= longestGrapheme ? replace(grapheme) : null;
      found = whole ?? Array.from(grapheme, (char) => replace(char) ?? char).join("");
      if (known.size === capacity) known.clear();
      known.set(grapheme, found);
    }
    return found;
  };
  return (text) => {
    let result = "";
    for (const piece of pieces(text)) {
      if (onlyAscii.test(piece)) result += piece.replace(asciiCharacter, replacement);
      else for (const { segment } of segmenter.segment(piece)) result += replacement(segment);
    }
    return result;
  };
}

function* pieces(text: string): Generator<string> {
  for (let start = 0; start < text.length; ) {
    let end = start + usualPiece;
    if (end < text.length) {
      border.lastIndex = end;
      // The search ends at the maximum piece length, so that a text without safe cuts takes linear time.
      const found = border.exec(text.slice(0, start + longestPiece));
      end = found?.index ?? start + longestPiece;
    }
    yield text.slice(start, end);
    start = end;
  }
}
