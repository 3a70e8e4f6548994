// Kana: the phonemes of Japanese syllables in Kokoro's symbols (those of misaki's Japanese).

/** Phonemes of single kana. */
const rows = `
  ア a イ i ウ ɯ エ e オ o
  カ ka キ kʲi ク kɯ ケ ke コ ko ガ ɡa ギ ɡʲi グ ɡɯ ゲ ɡe ゴ ɡo
  サ sa シ ɕi ス sɨ セ se ソ so ザ ʣa ジ ʥi ズ zɨ ゼ ʣe ゾ ʣo
  タ ta チ ʨi ツ ʦɨ テ te ト to ダ da ヂ ʥi ヅ zɨ デ de ド do
  ナ na ニ ɲi ヌ nɯ ネ ne ノ no
  ハ ha ヒ çi フ ɸɯ ヘ he ホ ho バ ba ビ bʲi ブ bɯ ベ be ボ bo パ pa ピ pʲi プ pɯ ペ pe ポ po
  マ ma ミ mʲi ム mɯ メ me モ mo
  ヤ ja ユ jɯ ヨ jo ラ ɾa リ ɾʲi ル ɾɯ レ ɾe ロ ɾo
  ワ βa ヰ i ヱ e ヲ o ヴ vɯ ヷ va ヸ vʲi ヹ ve ヺ vo ヵ ka ヶ ke
`;
const small: Readonly<Record<string, string>> = {
  ァ: "a",
  ィ: "i",
  ゥ: "ɯ",
  ェ: "e",
  ォ: "o",
  ャ: "ja",
  ュ: "jɯ",
  ョ: "jo",
  ヮ: "βa",
};
/** Consonants that kana have only before a small vowel (ク is kɯ, but クァ is kᵝa). All other kana keep their usual consonant. */
const beforeSmall: Readonly<Record<string, string>> = {
  ウ: "β",
  イ: "j",
  ク: "kᵝ",
  グ: "ɡᵝ",
};

const whole = new Map<string, string>();
const words = rows.trim().split(/\s+/u);
for (let i = 0; i < words.length; i += 2) whole.set(words[i] ?? "", words[i + 1] ?? "");

/** Returns the phonemes of a word in kana. Other characters are left out. */
export function phonemesOfKana(word: string): string {
  const kana = [...katakana(word)];
  const syllables: string[] = [];
  for (let i = 0; i < kana.length; i++) {
    const [sign = "", next = ""] = [kana[i], kana[i + 1]];
    const both = small[next] === undefined ? undefined : contracted(sign, next);
    if (both !== undefined) i++;
    const own = sign === "ー" ? "ː" : sign === "ッ" ? "ʔ" : sign === "ン" ? "ɴ" : undefined;
    syllables.push(both ?? own ?? whole.get(sign) ?? small[sign] ?? "");
  }
  return syllables.map((syllable, i) => (syllable === "ɴ" ? nasalBefore(syllables[i + 1] ?? "") : syllable)).join("");
}

/** Returns katakana for hiragana. */
export function katakana(text: string): string {
  return text.replaceAll(/[ぁ-ゖ]/gu, (sign) => String.fromCodePoint((sign.codePointAt(0) ?? 0) + 0x60));
}

/** Returns the phonemes of a kana followed by a small kana, such as キャ or ティ. */
function contracted(sign: string, next: string): string | undefined {
  const full = whole.get(sign);
  if (full === undefined) return undefined;
  const vowel = (small[next] ?? "").slice(-1);
  if ("ャュョ".includes(next)) {
    // ヴュ is read as ビュ.
    const consonant = sign === "ヴ" ? "b" : full.slice(0, -1);
    const isSoft = full.endsWith("i") && full.length > 1;
    return `${consonant}${isSoft ? "" : "ʲ"}${vowel === "ɯ" ? "ɨ" : vowel}`;
  }
  const own = beforeSmall[sign];
  const consonant = own ?? full.slice(0, -1);
  const isSoftened = next === "ィ" && own === undefined && !full.endsWith("i");
  return `${consonant}${isSoftened ? "ʲ" : ""}${vowel}`;
}

/** Returns the phoneme of ン before a syllable. */
function nasalBefore(next: string): string {
  if (/^[mpb]/u.test(next)) return "m";
  if (/^[kɡ]/u.test(next)) return "ŋ";
  if (/^[ɲʨʥ]/u.test(next)) return "ɲ";
  return /^[ntdɾz]/u.test(next) ? "n" : "ɴ";
}
