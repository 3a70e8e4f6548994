// Japanese numerals: digits become kanji, which the dictionary splits into words, and kanji become kana with their sound changes.

const digits = "〇一二三四五六七八九";
const ones = ["", "十", "百", "千"];
const groups = ["", "万", "億", "兆"];

/**
 * Writes the numbers of a text in kanji: 2,026 as 二千二十六, 3.5 as 三点五. Numbers with a leading zero or 17 digits or more are written digit by
 * digit.
 */
export function kanjiNumbers(text: string): string {
  return text
    .replaceAll(/(?<=\d),(?=\d{3}(?!\d))/gu, "")
    .replaceAll(/(\d+)(?:\.(\d+))?/gu, (_match, whole: string, part?: string) => {
      const head = /^0\d|^\d{17}/u.test(whole) ? singly(whole) : kanjiOf(whole);
      return part === undefined ? head : `${head}点${singly(part)}`;
    });
}

function singly(number: string): string {
  return number.replaceAll(/\d/gu, (digit) => digits[Number(digit)] ?? "");
}

function kanjiOf(number: string): string {
  if (number === "0") return "〇";
  const parts: string[] = [];
  for (let end = number.length, group = 0; end > 0; end -= 4, group++) {
    const part = number.slice(Math.max(0, end - 4), end);
    const kanji = [...part].map((digit, i) => {
      const one = ones[part.length - 1 - i] ?? "";
      // A one is not spoken before ten, hundred and thousand: 十, but 一万 and 一千万.
      const isSilent = digit === "1" && one !== "" && !(one === "千" && group > 0);
      return digit === "0" ? "" : `${isSilent ? "" : (digits[Number(digit)] ?? "")}${one}`;
    });
    const written = kanji.join("");
    if (written !== "") parts.unshift(`${written}${groups[group]}`);
  }
  return parts.join("");
}

/** Readings of numerals. Longer numerals precede shorter ones. */
const readings: readonly (readonly [string, string])[] = [
  ["三百", "サンビャク"],
  ["六百", "ロッピャク"],
  ["八百", "ハッピャク"],
  ["三千", "サンゼン"],
  ["八千", "ハッセン"],
  ["一千", "イッセン"],
  ["一兆", "イッチョー"],
  ["八兆", "ハッチョー"],
  ["十兆", "ジュッチョー"],
  ["〇点", "レーテン"],
  ["十", "ジュー"],
  ["百", "ヒャク"],
  ["千", "セン"],
  ["万", "マン"],
  ["億", "オク"],
  ["兆", "チョー"],
  ["点", "テン"],
  ["〇", "ゼロ"],
  ["一", "イチ"],
  ["二", "ニ"],
  ["三", "サン"],
  ["四", "ヨン"],
  ["五", "ゴ"],
  ["六", "ロク"],
  ["七", "ナナ"],
  ["八", "ハチ"],
  ["九", "キュー"],
];

/** Whether a word consists only of the kanji that write numbers. 点 is the decimal point. */
export function isNumeral(word: string): boolean {
  return /^[〇一二三四五六七八九十百千万億兆点]+$/u.test(word);
}

/** Returns the reading of numerals in katakana. */
export function readingOfNumerals(word: string): string {
  return readings.reduce((read, [kanji, kana]) => read.replaceAll(kanji, kana), word);
}
