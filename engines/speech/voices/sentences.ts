// Sentences: normalises the text of a speech request and splits it into sentences, which are spoken one at a time. Numbers are left to
// espeak-ng, which reads them in the voice's language.

/** Maximum length of a sentence in characters. A model's memory grows with the square of the length. */
export const maxSentenceLength = 300;

/** English abbreviations whose dot would end a sentence. */
const abbreviations: Readonly<Record<string, string>> = {
  mr: "mister",
  mrs: "missis",
  ms: "miss",
  dr: "doctor",
  prof: "professor",
  st: "saint",
  jr: "junior",
  sr: "senior",
  vs: "versus",
  no: "number",
  approx: "approximately",
  dept: "department",
  fig: "figure",
};
const abbreviation = new RegExp(`\\b(${Object.keys(abbreviations).join("|")})\\.(?=\\s+[\\p{Lu}\\d])`, "giu");

const currencies: Readonly<Record<string, readonly [one: string, many: string, hundredth: string]>> = {
  $: ["dollar", "dollars", "cents"],
  "£": ["pound", "pounds", "pence"],
  "€": ["euro", "euros", "cents"],
};
const amount = /([$£€])\s?(\d{1,3}(?:,\d{3})+|\d+)(?:\.(\d{2}))?(?!\d)(?:\s(thousand|million|billion|trillion)\b)?/gu;

/** Markdown markup and other characters that are not spoken. */
const unspoken = /[*_`#~|<>{}[\]\\^]+/gu;

/** Returns a text as it is spoken: one space between words, no Markdown. English abbreviations and amounts of money are written out. */
export function normalised(text: string, language: string): string {
  let spoken = text.normalize("NFC").replaceAll(unspoken, " ");
  if (language.startsWith("en")) spoken = spokenEnglish(spoken);
  return spoken.replaceAll(/[\p{Cc}\p{Cf}]+/gu, (controls) => (/[\n\r\t]/.test(controls) ? controls : "")).trim();
}

function spokenEnglish(text: string): string {
  return text
    .replaceAll(/\be\.g\.,?/giu, "for example,")
    .replaceAll(/\bi\.e\.,?/giu, "that is,")
    .replaceAll(/\betc\.(?=\s+\p{Lu}|\s*$)/gu, "et cetera.")
    .replaceAll(/\betc\./gu, "et cetera")
    .replaceAll(abbreviation, (_match, short: string) => spokenAbbreviation(short))
    .replaceAll(amount, (_match, sign: string, whole: string, hundredths?: string, scale?: string) =>
      spokenAmount(sign, whole, hundredths, scale),
    )
    .replaceAll(/\s&\s/gu, " and ");
}

/** Writes an abbreviation out. Its first letter stays a capital, because a sentence may begin with it. */
function spokenAbbreviation(short: string): string {
  const word = abbreviations[short.toLowerCase()] ?? short;
  return /^\p{Lu}/u.test(short) ? word[0]?.toUpperCase() + word.slice(1) : word;
}

function spokenAmount(sign: string, whole: string, hundredths: string | undefined, scale: string | undefined): string {
  const [one, many, parts] = currencies[sign] ?? ["", "", ""];
  if (scale !== undefined) return `${whole}${hundredths === undefined ? "" : `.${hundredths}`} ${scale} ${many}`;
  const main = `${whole} ${whole === "1" ? one : many}`;
  return hundredths === undefined || Number(hundredths) === 0 ? main : `${main} and ${Number(hundredths)} ${parts}`;
}

/** Returns the sentences of a normalised text. A paragraph ends a sentence. A sentence that is too long is cut at a pause or a space. */
export function sentencesOf(text: string, language: string): string[] {
  const segmenter = new Intl.Segmenter(supportedLocale(language), { granularity: "sentence" });
  const paragraphs = text.split(/\n\s*\n|\n(?=\s*(?:[-•]|\d+[.)])\s)/u);
  return paragraphs
    .flatMap((paragraph) =>
      [...segmenter.segment(paragraph.replaceAll(/\s+/gu, " "))].map(({ segment }) => segment.trim()),
    )
    .flatMap(cut)
    .filter((sentence) => /[\p{L}\p{N}]/u.test(sentence));
}

function supportedLocale(language: string): string {
  try {
    return Intl.Segmenter.supportedLocalesOf(language)[0] ?? "en";
  } catch {
    return "en";
  }
}

/** Cuts a sentence into parts of at most maxSentenceLength characters. */
function cut(sentence: string): string[] {
  const parts: string[] = [];
  let rest = sentence;
  while (rest.length > maxSentenceLength) {
    const head = rest.slice(0, maxSentenceLength);
    const marks = [", ", "; ", ": ", "– ", "— ", ") ", "、", "，"];
    const pause = Math.max(...marks.map((mark) => head.lastIndexOf(mark))) + 1;
    const space = head.lastIndexOf(" ");
    const end = pause > maxSentenceLength / 4 ? pause : space > 0 ? space : safeEnd(head);
    parts.push(rest.slice(0, end).trim());
    rest = rest.slice(end).trim();
  }
  return [...parts, rest];
}

/** Returns the length of a text, without the first half of a surrogate pair at its end. */
function safeEnd(text: string): number {
  return /[\uD800-\uDBFF]$/u.test(text) ? text.length - 1 : text.length;
}
