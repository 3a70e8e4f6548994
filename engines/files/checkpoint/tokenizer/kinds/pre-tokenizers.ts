// Pre-tokenizer names: the patterns with which a tokenizer.json cuts text into words, and the name that llama.cpp has for
// them. Files do not contain the name, so the patterns identify it. A unit test checks that engines/text knows the names.
import type { JsonField } from "../../../json-field.ts";
import { type TokenizerJson, typeOf } from "../source/tokenizer-json.ts";
import type { Warn } from "../token-table.ts";

interface KnownPreTokenizer {
  readonly name: string;
  /** Patterns of a tokenizer.json, in order. Each cuts the parts that the one before produced. */
  readonly cuts: readonly string[];
  /** A word that is itself a token becomes that token without merges (`ignore_merges`). */
  readonly takesWords?: true;
  /** Difference between the rules that llama.cpp has for `name` and the patterns; shown in a warning. */
  readonly difference?: string;
}

const contraction = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const letters = String.raw`[^\r\n\p{L}\p{N}]?\p{L}+`;
const marks = String.raw` ?[^\s\p{L}\p{N}]+[\r\n]*`;
const lastSpaces = String.raw`\s+(?!\S)|\s+`;
const spaces = String.raw`\s*[\r\n]+|${lastSpaces}`;
const digit = String.raw`\p{N}`;
const threeDigits = String.raw`\p{N}{1,3}`;

const gpt2 = String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|${lastSpaces}`;
const llama3 = `${contraction}|${letters}|${threeDigits}|${marks}|${spaces}`;
const qwen2 = `${contraction}|${letters}|${digit}|${marks}|${spaces}`;
const qwen35 = String.raw`${contraction}|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|${spaces}`;
const bloom = " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+";
const han = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+";
const kana = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+";
const asciiMark = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]";
const markedWords = String.raw`${asciiMark}[A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+`;
const deepseek3 = String.raw`${markedWords}| ?[\p{P}\p{S}]+[\r\n]*|${spaces}`;

const upper = String.raw`[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`;
const lower = String.raw`[\p{Ll}\p{Lm}\p{Lo}\p{M}]`;

/** Returns a pattern that begins a new word at a capital after a small letter. `ending`: pattern of contractions after a word. */
function casedWords(digits: string, ending: string): string {
  const before = String.raw`[^\r\n\p{L}\p{N}]?`;
  const words = `${before}${upper}*${lower}+${ending}|${before}${upper}+${lower}*${ending}`;
  return String.raw`${words}|${digits}| ?[^\s\p{L}\p{N}]+[\r\n/]*|${spaces}`;
}

/** Letters of the pre-tokenizer of DeepSeek LLM, as ranges of a character class. */
const deepseekLetters = [
  "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377",
  "\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556",
  "\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15",
  "\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe",
  "\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113",
  "\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184",
  "\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e",
  "\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\u{10400}-\u{1044f}\u{104b0}-\u{104d3}",
  "\u{104d8}-\u{104fb}\u{10c80}-\u{10cb2}\u{10cc0}-\u{10cf2}\u{118a0}-\u{118df}\u{1e900}-\u{1e943}",
].join("");
const deepseekMarks = "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+";

const youtuScripts =
  "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+|" +
  "[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+";

const capitals = "capitals outside ASCII do not begin a new word";
const capitalsAndMarks = `${capitals}, and combining marks end a word`;

/** In order of preference: the first entry with equal cuts is used. */
export const knownPreTokenizers: readonly KnownPreTokenizer[] = [
  { name: "gpt-2", cuts: [gpt2] },
  { name: "smollm", cuts: [digit, gpt2] },
  { name: "llama-bpe", cuts: [llama3], takesWords: true },
  { name: "dbrx", cuts: [llama3] },
  { name: "qwen2", cuts: [qwen2] },
  { name: "qwen35", cuts: [qwen35] },
  {
    name: "granite-embed-multi-97m",
    cuts: [casedWords(threeDigits, `${contraction}?`)],
    takesWords: true,
    difference: capitals,
  },
  { name: "tekken", cuts: [casedWords(digit, "")], takesWords: true, difference: capitalsAndMarks },
  { name: "deepseek-v3", cuts: [threeDigits, kana, deepseek3] },
  {
    name: "deepseek-coder",
    cuts: [String.raw`[\r\n]`, String.raw`\s?\p{L}+`, String.raw`\s?\p{P}+`, han, digit],
  },
  {
    name: "deepseek-llm",
    cuts: [String.raw`[\r\n]`, String.raw`\s?[${deepseekLetters}]+`, deepseekMarks, String.raw`\s+$`, han, digit],
  },
  { name: "bloom", cuts: [bloom] },
  { name: "viking", cuts: [bloom, digit] },
  { name: "falcon", cuts: ["Punctuation(Contiguous)", gpt2, String.raw`\p{N}+`, "[0-9][0-9][0-9]"] },
  {
    name: "superbpe",
    cuts: [String.raw`\p{N}+`, String.raw`(?=(\d{3})+(?!\d))`],
    difference: "digits outside ASCII are not grouped",
  },
  {
    name: "tiny_aya",
    cuts: [String.raw`\d{1,3}(?=(?:\d{3})*\b)`, casedWords(threeDigits, `${contraction}?`)],
    difference: `${capitals}, and digits are also grouped from the right before letters`,
  },
  {
    name: "youtu",
    cuts: [youtuScripts, casedWords(digit, `${contraction}?`)],
    takesWords: true,
    difference: capitals,
  },
  {
    name: "bailingmoe",
    cuts: [String.raw`${contraction}|${letters}|\p{N}|${marks}|\s*[\r\n]|${lastSpaces}`],
  },
  {
    name: "seed-coder",
    cuts: [String.raw`${contraction}|${letters}|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|${spaces}`],
  },
  { name: "ufakzeka", cuts: [`${letters}|${digit}|${marks}|${spaces}`] },
  {
    name: "exaone-moe",
    cuts: [
      String.raw`${contraction}|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|${lastSpaces}`,
    ],
  },
  {
    name: "minicpm5",
    cuts: [threeDigits, String.raw`${contraction}|${letters}|\p{N}+|${marks}|${spaces}`],
    takesWords: true,
  },
  { name: "laguna", cuts: [String.raw`[^\n]+|[\n]+`, qwen2] },
  {
    name: "jais-2",
    cuts: [
      String.raw`${contraction}|${letters}|${threeDigits}|${marks}|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}`,
    ],
  },
];

/**
 * Returns the known pre-tokenizer that has the patterns of a byte-level tokenizer.json. Throws `model_file_invalid` with the
 * patterns if there is none. `isBuilt`: whether merges build every token, so that `ignore_merges` makes no difference.
 */
export function identifyPreTokenizer(json: TokenizerJson, isBuilt: () => boolean, warn: Warn): KnownPreTokenizer {
  const cuts = json.preTokenizers.flatMap(cutsOf);
  const wanted = keyOf(cuts);
  const takesWords = json.model.get("ignore_merges").flag() ?? false;
  const fitting = knownPreTokenizers.filter((known) => keyOf(known.cuts) === wanted);
  const found = fitting.find((known) => (known.takesWords ?? false) === takesWords) ?? fitting[0];
  if (found === undefined) {
    throw json.root
      .get("pre_tokenizer")
      .invalid(
        `cuts text with ${shownCuts(cuts)}, which llama.cpp has no name for; set tok_model_id to a folder with an equal vocabulary and a known tokenizer, or use a GGUF file of the model`,
      );
  }
  if ((found.takesWords ?? false) !== takesWords && !isBuilt()) {
    warn(`ignore_merges is ${takesWords}, but words are encoded as if it were ${!takesWords}`);
  }
  if (found.difference !== undefined) warn(`words are cut by llama.cpp's rules: ${found.difference}`);
  return found;
}

/** Maximum number of patterns in an error, and maximum length of each. */
const [maxCuts, maxShown] = [6, 400];

function shownCuts(cuts: readonly string[]): string {
  const shown = cuts.slice(0, maxCuts).map((cut) => JSON.stringify(cut.slice(0, maxShown)));
  return cuts.length === 0 ? "no pattern" : shown.join(", ") + (cuts.length > maxCuts ? " ..." : "");
}

/** Returns the patterns with which a step cuts. A step that cannot be written as a pattern is named with its options. */
function cutsOf(step: JsonField): string[] {
  const type = typeOf(step);
  if (type === "ByteLevel") return (step.get("use_regex").flag() ?? true) ? [gpt2] : [];
  if (type === "Digits") return [(step.get("individual_digits").flag() ?? false) ? digit : `${digit}+`];
  if (type === "Split") return [splitPattern(step)];
  if (type === "Punctuation") return [`Punctuation(${step.get("behavior").text() ?? "Isolated"})`];
  return [type];
}

function splitPattern(step: JsonField): string {
  const regex = step.get("pattern").get("Regex").text();
  const behavior = step.get("behavior").text() ?? "Isolated";
  const isInverted = step.get("invert").flag() ?? false;
  // An inverted step with the behavior "Removed" removes what its pattern does not match. The patterns of the table match any text, so
  // nothing is removed.
  const keepsAll = behavior === "Isolated" || (behavior === "Removed" && isInverted);
  if (regex !== null && keepsAll) return regex;
  const pattern = regex ?? step.get("pattern").get("String").text() ?? "";
  return `Split(${JSON.stringify(pattern)}, ${behavior}${isInverted ? ", inverted" : ""})`;
}

/** Returns a key that is equal for patterns that differ only in their spelling. */
function keyOf(cuts: readonly string[]): string {
  return cuts.map(canonical).join("\n");
}

const contractionSpellings = [
  "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])",
  "'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])",
  "'(?i:[sdmt]|ll|ve|re)",
  "(?i:'s|'t|'re|'ve|'m|'d|'ll)",
];

function canonical(pattern: string): string {
  let text = pattern.replaceAll("\r", "\\r").replaceAll("\n", "\\n");
  for (const spelling of contractionSpellings) text = text.replaceAll(spelling, contraction);
  return (
    text
      .replaceAll("'(?:[sdmt]|ll|ve|re)|", "'s|'t|'re|'ve|'m|'ll|'d|")
      // Possessive quantifiers match the same as greedy ones here, because what follows a quantifier never begins with what it matches.
      .replaceAll(/([+*?}])\+/g, "$1")
      .replaceAll("\\p{N}{1}", "\\p{N}")
      .replaceAll("\\s{1}", "\\s")
      .replaceAll("[\\n]+", "\\n+")
  );
}
