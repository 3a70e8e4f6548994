// Phonemes of Kokoro: espeak-ng's phonemes converted to the symbols that the model was trained with, and for Japanese those of japanese.ts.
// The symbols are those of misaki, the phonemizer of the model's author.
import { phonemesOf } from "../phonemes.ts";
import { japanesePhonemes } from "./japanese.ts";

/** Languages by the first letter of a voice's name. Chinese (z) is not supported. */
export const kokoroLanguages: Readonly<Record<string, string>> = {
  a: "en-us",
  b: "en-gb",
  e: "es",
  f: "fr-fr",
  h: "hi",
  i: "it",
  j: "ja",
  p: "pt-br",
};

const tie = "^";

/** Kokoro's symbols for English, by espeak-ng's phonemes. Longer keys precede shorter ones. */
const english: readonly (readonly [string, string])[] = [
  ["ʔˌn̩", "ʔn"],
  ["ʔn̩", "ʔn"],
  ["a^ɪ", "I"],
  ["a^ʊ", "W"],
  ["d^ʒ", "ʤ"],
  ["e^ɪ", "A"],
  ["t^ʃ", "ʧ"],
  ["ɔ^ɪ", "Y"],
  ["ə^l", "ᵊl"],
  ["ʲo", "jo"],
  ["ʲə", "jə"],
  ["e^ə", "ɛː"],
  ["ʲ", ""],
  ["e", "A"],
  ["ɚ", "əɹ"],
  ["r", "ɹ"],
  ["x", "k"],
  ["ç", "k"],
  ["ɐ", "ə"],
  ["ɬ", "l"],
  ["\u0303", ""],
];
const american: readonly (readonly [string, string])[] = [
  ["^ɹɹ", "ɹ"],
  ["o^ʊ", "O"],
  ["ɜːɹ", "ɜɹ"],
  ["ɜː", "ɜɹ"],
  ["ɪə", "iə"],
  ["ː", ""],
];
const british: readonly (readonly [string, string])[] = [
  ["i^ə", "ɪə"],
  ["ə^ʊ", "Q"],
];
const lastOfEnglish: readonly (readonly [string, string])[] = [
  ["o", "ɔ"],
  ["ɾ", "T"],
  ["ʔ", "t"],
  [tie, ""],
];
const others: readonly (readonly [string, string])[] = [
  ["a^ɪ", "I"],
  ["a^ʊ", "W"],
  ["d^z", "ʣ"],
  ["d^ʒ", "ʤ"],
  ["e^ɪ", "A"],
  ["o^ʊ", "O"],
  ["ə^ʊ", "Q"],
  ["s^s", "S"],
  ["t^s", "ʦ"],
  ["t^ʃ", "ʧ"],
  ["ɔ^ɪ", "Y"],
  [tie, ""],
  ["-", ""],
];

/** Returns the phonemes of a sentence in Kokoro's symbols. */
export async function kokoroPhonemes(sentence: string, language: string, signal: AbortSignal): Promise<string> {
  if (language === "ja") {
    return await japanesePhonemes(sentence, signal, (words) => kokoroPhonemes(words, "en-us", signal));
  }
  return kokoroSigns(await phonemesOf(sentence, language, signal, tie), language);
}

/** Converts espeak-ng's phonemes, with ties, to Kokoro's symbols. */
export function kokoroSigns(phonemes: string, language: string): string {
  if (!language.startsWith("en")) return replaced(phonemes, others);
  const syllables = replaced(phonemes, english).replaceAll(/(\S)\u0329/gu, "ᵊ$1");
  return replaced(replaced(syllables, language === "en-gb" ? british : american), lastOfEnglish);
}

function replaced(text: string, signs: readonly (readonly [string, string])[]): string {
  return signs.reduce((changed, [from, to]) => changed.replaceAll(from, to), text);
}
