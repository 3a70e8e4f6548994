// Japanese phonemes for Kokoro. The program mecab, with the dictionary ipadic in UTF-8, splits a sentence into words and returns the
// readings of kanji; the rest is done with tables. The phonemes have no pitch, because the model was trained without pitch.
import { ServerError } from "../../../../runtime/errors.ts";
import { type Program, runProgram } from "../program.ts";
import { katakana, phonemesOfKana } from "./kana.ts";
import { isNumeral, kanjiNumbers, readingOfNumerals } from "./numerals.ts";

const mecab: Program = {
  name: "mecab",
  advice: "Japanese voices need it; install it, for example with: apt-get install mecab mecab-ipadic-utf8",
};
/** Size of mecab's input buffer in bytes. A line has up to 300 characters of 4 bytes. */
const bufferBytes = 16_384;

const marks: Readonly<Record<string, string>> = {
  "。": ".",
  "、": ",",
  "，": ",",
  ",": ",",
  ".": ".",
  "!": "!",
  "?": "?",
  ":": ":",
  ";": ";",
  "…": "…",
  "〜": "—",
  "~": "—",
  "—": "—",
};
const opening: Readonly<Record<string, string>> = { "「": "“", "『": "“", "(": "(", "《": "(" };
const closing: Readonly<Record<string, string>> = { "」": "”", "』": "”", ")": ")", "》": ")" };

interface Word {
  readonly surface: string;
  /** Part of speech and its division, as ipadic names them; 名詞,数 is a numeral. */
  readonly kind: string;
  /** Pronunciation in katakana; "": the dictionary has none. */
  readonly spoken: string;
}

/**
 * Returns the phonemes of a Japanese sentence. `foreign` returns those of Latin words. Throws `unsupported` if mecab is not installed,
 * and `invalid_value` if it cannot read a word.
 */
export async function japanesePhonemes(
  sentence: string,
  signal: AbortSignal,
  foreign: (words: string) => Promise<string>,
): Promise<string> {
  const words = joined(await wordsOf(kanjiNumbers(sentence.normalize("NFKC")), signal));
  let phonemes = "";
  for (const word of words) {
    const { surface } = word;
    const signs = signsOf(surface);
    if (signs !== null) phonemes = signs.reduce(withSign, phonemes);
    else {
      const spoken = /^\p{Script=Latin}/u.test(surface) ? (await foreign(surface)).replace(/\.$/u, "") : spokenOf(word);
      phonemes += spoken === "" ? "" : `${spoken} `;
    }
  }
  return phonemes.trim();
}

/**
 * Returns the punctuation marks in a word; null if the word has other characters. A word may have several marks: mecab treats neighbouring
 * ASCII marks, such as `!?`, as one word, and NFKC writes … as three dots.
 */
function signsOf(surface: string): readonly string[] | null {
  const signs = [...surface.replaceAll("...", "…")];
  return signs.every((sign) => opening[sign] !== undefined || closingOf(sign) !== undefined) ? signs : null;
}

function closingOf(sign: string): string | undefined {
  return closing[sign] ?? marks[sign];
}

function withSign(phonemes: string, sign: string): string {
  const close = closingOf(sign);
  if (close !== undefined) return `${phonemes.trimEnd()}${close} `;
  return phonemes.endsWith(" ") || phonemes === "" ? `${phonemes}${opening[sign]}` : `${phonemes} ${opening[sign]}`;
}

function spokenOf(word: Word): string {
  const { surface, spoken } = word;
  if (isNumber(word) && isNumeral(surface)) return phonemesOfKana(readingOfNumerals(surface));
  if (spoken !== "") return phonemesOfKana(spoken);
  if (/^[\p{Script=Hiragana}\p{Script=Katakana}ー]+$/u.test(surface)) return phonemesOfKana(surface);
  if (!/\p{L}/u.test(surface)) return "";
  const message = `expected Japanese that mecab can read, got ${JSON.stringify(surface)}; write the word in kana`;
  throw new ServerError("invalid_value", message, { param: "input" });
}

function isNumber({ kind }: Word): boolean {
  return kind === "名詞,数";
}

/**
 * Joins words that are spoken as one word: the numerals of a number, whose sounds change between them, and the endings of a verb or an
 * adjective, such as the た of 行きました. The う of 行こう lengthens the sound before it.
 */
function joined(words: readonly Word[]): readonly Word[] {
  const all: Word[] = [];
  for (const word of words) {
    const last = all.at(-1);
    if (last !== undefined && ((isNumber(last) && isNumber(word)) || isEnding(word, last))) {
      const spoken = word.surface === "う" ? "ー" : word.spoken;
      all[all.length - 1] = { ...last, surface: last.surface + word.surface, spoken: last.spoken + spoken };
    } else all.push(word);
  }
  return all;
}

function isEnding({ surface, kind }: Word, before: Word): boolean {
  if (!/^(?:動詞|助動詞|形容詞)/u.test(before.kind)) return false;
  return kind.startsWith("助動詞") ? "ただう".includes(surface) : kind === "助詞,接続助詞" && "てで".includes(surface);
}

/** Returns the words of a text. The text is passed to mecab as one line, because mecab treats each line as a sentence. */
async function wordsOf(text: string, signal: AbortSignal): Promise<readonly Word[]> {
  const line = text.replaceAll(/\s+/gu, " ");
  const fields = (pronunciation: string): string => `%m\\t%f[0],%f[1]\\t${pronunciation}\\n`;
  const flags = ["-b", String(bufferBytes), "-F", fields("%f[8]"), "-U", fields(""), "-E", ""];
  const output = (await runProgram(mecab, flags, `${line}\n`, signal)).toString();
  return output.split("\n").flatMap((row) => {
    const [surface = "", kind = "", spoken = ""] = row.split("\t");
    if (surface === "") return [];
    if (spoken !== "" && !/^[ァ-ヺー・]+$/u.test(katakana(spoken)) && /\p{L}/u.test(spoken))
      throw otherDictionary(spoken);
    return [{ surface, kind, spoken: spoken === "*" ? "" : spoken }];
  });
}

function otherDictionary(got: string): ServerError {
  const message = `mecab expects the dictionary ipadic in UTF-8, which reads words in katakana; got ${JSON.stringify(got)}`;
  return new ServerError("model_failed", `${message}: ${mecab.advice}`);
}
