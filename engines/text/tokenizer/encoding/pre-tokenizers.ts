// Pre-tokenizer table: the rules that cut text into words before pairs are merged, keyed by the pre-tokenizer name in
// the model file. The cuts equal those of llama.cpp's tokenizer, which the llama.cpp engine uses. Data only;
// word-rules.ts does the cutting.
import { compileRule, inThrees, type Rule } from "./word-rules.ts";

/**
 * Kind of symbols that are merged: characters that represent bytes (byte-alphabet.ts), characters with U+2581 for a
 * space, or unchanged characters.
 */
type Symbols = "bytes" | "spaces" | "characters";

export interface PreTokenizer {
  /** Passes that cut the text, in order. Each pass cuts the parts that the previous pass produced. */
  readonly rules: readonly Rule[];
  /** True: a word that equals a token becomes that token, without merging. */
  readonly wordsFirst: boolean;
  /** True: a word of line feeds that equals a token becomes that token. */
  readonly newlinesFirst: boolean;
  readonly symbols: Symbols;
  /**
   * Whether prompts start with BOS. `addsBos` is the default if the file does not specify it; `forcesBos` applies
   * always.
   */
  readonly addsBos: boolean;
  readonly forcesBos: boolean;
}

const contraction = "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])";
const punctuation = String.raw` ?[^\s\p{L}\p{N}]+[\r\n]*`;
const punctuationOrPath = String.raw` ?[^\s\p{L}\p{N}]+[\r\n/]*`;
const spaces = String.raw`\s*[\r\n]+|\s+(?!\S)|\s+`;
const letters = String.raw`[^\r\n\p{L}\p{N}]?\p{L}+`;
const threeDigits = String.raw`\p{N}{1,3}`;
const kana = String.raw`[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+`;

const gpt2 = String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)`;
const llama3 = `${contraction}|${letters}|${threeDigits}|${punctuation}|${spaces}`;
const qwen2 = String.raw`${contraction}|${letters}|\p{N}|${punctuation}|${spaces}`;
const qwen35 = String.raw`${contraction}|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|${spaces}`;
const asciiMark = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]";
const markedWords = String.raw`${asciiMark}[A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+`;
const deepseek3 = String.raw`${markedWords}| ?[\p{P}\p{S}]+[\r\n]*|${spaces}`;
const bloom = String.raw` ?[^(\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+`;

/**
 * Returns a pattern for words that may begin with capitals: "aB" is split, "Ab" is not. Letters outside ASCII
 * count as both upper and lower case.
 */
function casedWords(extra: string, digits: string, ending: string): string {
  const upper = `(?:[^\\P{L}a-z]${extra})`;
  const lower = `(?:[^\\P{L}A-Z]${extra})`;
  const before = String.raw`[^\r\n\p{L}\p{N}]?`;
  const words = `${before}${upper}*${lower}+${ending}|${before}${upper}+${lower}*${ending}`;
  return `${words}|${digits}|${punctuationOrPath}|${spaces}`;
}

const unmarkedWords = String.raw`[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+(?:${contraction})?`;

// Han characters as code point blocks, as in llama.cpp.
const han = String.raw`\u4e00-\u9fff\u3400-\u4dbf\u{20000}-\u{2a6df}\u{2a700}-\u{2ebef}\uf900-\ufaff\u{2f800}-\u{2fa1f}`;
const kimi = String.raw`[${han}]+|[^\r\n\p{L}\p{N}]?[^\P{L}${han}]+(?:${contraction})?|${threeDigits}|${punctuation}|${spaces}`;

const casedLetters = [
  String.raw`A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-`,
  String.raw`\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-`,
  String.raw`\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf`,
  String.raw`\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-`,
  String.raw`\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc`,
  String.raw`\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115`,
  String.raw`\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e`,
  String.raw`\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-`,
  String.raw`\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a`,
  String.raw`\u{10400}-\u{1044f}\u{104b0}-\u{104d3}\u{104d8}-\u{104fb}\u{10c80}-\u{10cb2}\u{10cc0}-\u{10cf2}`,
  String.raw`\u{118a0}-\u{118df}\u{1e900}-\u{1e943}`,
].join("");

const asianScripts = [
  String.raw`\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f`,
  String.raw`\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff`,
].join("");

const youtuScripts = [
  String.raw`[\uac00-\ud7a3\u3131-\u318e]+`,
  String.raw`[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+`,
  String.raw`[\u3105-\u312f]+`,
  kana,
].join("|");

interface Entry {
  readonly names: string;
  readonly cuts: readonly (string | Rule)[];
  readonly wordsFirst?: true;
  readonly newlinesFirst?: true;
  readonly symbols?: Symbols;
  readonly addsBos?: true;
  readonly forcesBos?: true;
}

const eachDigit = String.raw`\p{N}`;

const entries: readonly Entry[] = [
  {
    names: "default",
    cuts: [String.raw`[\p{P}\$\+<=>\^~\|]+`, gpt2, String.raw`\p{N}+`, "[0-9][0-9][0-9]"],
  },
  {
    names: "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
    cuts: [llama3],
    wordsFirst: true,
    addsBos: true,
  },
  { names: "dbrx smaug-bpe glm4 chatglm-bpe", cuts: [llama3] },
  {
    names: "jais-2",
    cuts: [
      String.raw`${contraction}|${letters}|${threeDigits}|${punctuation}|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s`,
    ],
  },
  {
    names:
      "gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert jina-v1-en jina-v2-code roberta-bpe mpt olmo jais trillion granite-docling exaone4",
    cuts: [gpt2],
  },
  { names: "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2", cuts: [eachDigit, gpt2] },
  {
    names: "stablelm2 qwen2 deepseek-r1-qwen kormo f2llmv2 megrez hunyuan solar-open grok-2",
    cuts: [qwen2],
  },
  { names: "qwen35", cuts: [qwen35] },
  {
    names: "deepseek-llm",
    cuts: [
      "[\r\n]",
      String.raw`\s?[${casedLetters}]+`,
      String.raw`\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+`,
      // The look-behind does not change the matches. It saves time in a long run of spaces, because
      // only the first space is tried.
      String.raw`(?<!\s)\s+$`,
      String.raw`[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+`,
      String.raw`\p{N}+`,
    ],
  },
  {
    names: "deepseek-coder",
    cuts: [
      "[\r\n]",
      String.raw`\s?\p{L}+`,
      String.raw`\s?\p{P}+`,
      String.raw`[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+`,
      eachDigit,
    ],
  },
  { names: "deepseek-v3 hunyuan-dense joyai-llm hy_v4", cuts: [threeDigits, kana, deepseek3] },
  {
    names: "spark2_5",
    cuts: [threeDigits, kana, String.raw`${markedWords}| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+`, eachDigit],
  },
  {
    names: "youtu",
    cuts: [youtuScripts, String.raw`${unmarkedWords}|\p{N}|${punctuationOrPath}|${spaces}`],
    wordsFirst: true,
  },
  {
    names: "falcon",
    cuts: [String.raw`[\p{P}\$\+<=>\^~\|${"`"}]+`, gpt2, "[0-9][0-9][0-9]"],
  },
  { names: "poro-chat bloom gpt3-finnish", cuts: [bloom] },
  { names: "viking", cuts: [bloom, eachDigit] },
  { names: "tekken", cuts: [casedWords("", eachDigit, "")], wordsFirst: true, addsBos: true },
  {
    names: "chameleon",
    cuts: [
      "<sentinel:[0-9]+>",
      "IMGIMG[A-I]{1,4}Z",
      String.raw`[\t\n]|    |  `,
      eachDigit,
      String.raw`[\p{P}!-/:-@\[-${"`"}\{-~]`,
      gpt2,
    ],
    addsBos: true,
  },
  { names: "gpt-4o llama4 kanana2 talkie minimax-m2", cuts: [casedWords("", threeDigits, `(?:${contraction})?`)] },
  {
    names: "granite-embed-multi-97m",
    cuts: [casedWords(String.raw`|\p{M}`, threeDigits, `(?:${contraction})?`)],
    wordsFirst: true,
  },
  {
    names: "tiny_aya cohere2moe",
    cuts: [inThrees(/\p{N}+/gu, true), `${unmarkedWords}|${threeDigits}|${punctuationOrPath}|${spaces}`],
  },
  { names: "kimi-k2", cuts: [kimi] },
  { names: "superbpe", cuts: [String.raw`\p{N}+`, inThrees(/[0-9]+/g, false)] },
  {
    names: "bailingmoe bailingmoe2 llada-moe",
    cuts: [String.raw`${contraction}|${letters}|\p{N}|${punctuation}|\s*[\r\n]|\s+(?!\S)|\s+`],
  },
  {
    names: "seed-coder",
    cuts: [String.raw`${contraction}|${letters}|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|${spaces}`],
  },
  { names: "ufakzeka", cuts: [String.raw`${letters}|\p{N}|${punctuation}|${spaces}`] },
  { names: "afmoe", cuts: [inThrees(/\p{N}+/gu, true), `[${asianScripts}]+`, deepseek3] },
  { names: "laguna", cuts: [String.raw`[^\n]+|\n+`, qwen2] },
  {
    names: "exaone-moe",
    cuts: [
      String.raw`${contraction}|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+`,
    ],
  },
  {
    names: "minicpm5",
    cuts: [threeDigits, String.raw`${contraction}|${letters}|\p{N}+|${punctuation}|${spaces}`],
    wordsFirst: true,
  },
  {
    names: "gemma4 granite-embed-multi-311m",
    cuts: [String.raw`[^\n]+|\n+`],
    newlinesFirst: true,
    symbols: "spaces",
    forcesBos: true,
  },
  { names: "sarvam-moe", cuts: [String.raw`[^\n]+|\n+`], symbols: "spaces" },
  { names: "whitespace", cuts: [String.raw`\S+`], symbols: "characters" },
];

const entryByName = new Map(entries.flatMap((entry) => entry.names.split(" ").map((name) => [name, entry] as const)));

export const preTokenizerNames: readonly string[] = [...entryByName.keys()];

/** Returns the pre-tokenizer with this name; null if there is none. */
export function findPreTokenizer(name: string): PreTokenizer | null {
  const entry = entryByName.get(name);
  if (entry === undefined) return null;
  return {
    rules: entry.cuts.map((cut) => (typeof cut === "string" ? compileRule(cut) : cut)),
    wordsFirst: entry.wordsFirst ?? false,
    newlinesFirst: entry.newlinesFirst ?? false,
    symbols: entry.symbols ?? "bytes",
    addsBos: entry.addsBos ?? false,
    forcesBos: entry.forcesBos ?? false,
  };
}
