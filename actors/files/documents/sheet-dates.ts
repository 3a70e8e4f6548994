// Dates of an Office Open XML spreadsheet. The file stores a date as a number of days; only the number format of the cell shows that it is a
// date.
import type { Entry, ZipFile } from "yauzl";
import { partsNamed, readXml } from "./xml-part.ts";

/** Numbers of the built-in formats of dates and times; those of durations are not among them. */
const builtIn: readonly (readonly [from: number, to: number])[] = [
  [14, 22],
  [27, 36],
  [45, 45],
  [47, 47],
  [50, 58],
];
/** Maximum number of cell styles that are read. Dates in cells of later styles are shown as numbers. */
const maxStyles = 65_536;
const secondsPerDay = 86_400;
/** The day after the last one, 9999-12-31, as a number. */
const endOfDays = 2_958_466;

export class SheetDates {
  /** By number of a cell style: whether it shows numbers as dates. */
  readonly #isDate: readonly boolean[];
  /** Whether day 0 is 1904-01-01. */
  readonly #isFrom1904: boolean;

  private constructor(isDate: readonly boolean[], isFrom1904: boolean) {
    this.#isDate = isDate;
    this.#isFrom1904 = isFrom1904;
  }

  static async read(archive: ZipFile, entries: readonly Entry[]): Promise<SheetDates> {
    let isFrom1904 = false;
    await readParts(archive, entries, /^xl\/workbook\.xml$/, (name, { date1904 }) => {
      if (name === "workbookPr") isFrom1904 = date1904 === "1" || date1904 === "true";
    });
    const formats = new Map<string, boolean>();
    const styles: boolean[] = [];
    let isOfCells = false;
    await readParts(archive, entries, /^xl\/styles\.xml$/, (name, { numFmtId = "", formatCode = "" }) => {
      if (name === "numFmt" && formats.size < maxStyles) formats.set(numFmtId, isDateFormat(formatCode));
      if (name.endsWith("Xfs")) isOfCells = name === "cellXfs";
      if (name !== "xf" || !isOfCells || styles.length === maxStyles) return;
      const number = Number(numFmtId);
      styles.push(formats.get(numFmtId) ?? builtIn.some(([from, to]) => number >= from && number <= to));
    });
    return new SheetDates(styles, isFrom1904);
  }

  /** Returns the text of a number in a cell of the style `style`: a date (ISO 8601), or the number itself. */
  textOf(value: string, style: string): string {
    const number = Number(value);
    if (this.#isDate[Number(style)] !== true || !(number >= 0 && number < endOfDays)) return value;
    const seconds = Math.round(number * secondsPerDay);
    const days = Math.floor(seconds / secondsPerDay);
    const [date = "", time = ""] = new Date(this.#startMs(days) + seconds * 1000).toISOString().split(/[T.]/);
    if (days === 0 && !this.#isFrom1904) return time;
    return seconds % secondsPerDay === 0 ? date : `${date} ${time}`;
  }

  /** Returns the time of day 0, in milliseconds since 1970. Day 60 is 1900-02-29, which never was; later days are one too many. */
  #startMs(days: number): number {
    return this.#isFrom1904 ? Date.UTC(1904, 0, 1) : Date.UTC(1899, 11, days < 60 ? 31 : 30);
  }
}

async function readParts(
  archive: ZipFile,
  entries: readonly Entry[],
  parts: RegExp,
  open: (name: string, attributes: Readonly<Record<string, string>>) => void,
): Promise<void> {
  const nothing = (): void => {};
  for (const entry of partsNamed(entries, parts))
    await readXml(archive, entry, { open, text: nothing, close: nothing, isDone: () => false });
}

/** Whether a number format shows a date or a time of day. Texts, escaped characters, colours and locales are left out. */
function isDateFormat(code: string): boolean {
  if (/\[[hms]+\]/i.test(code)) return false;
  return /[ymdhs]/i.test(code.replaceAll(/"[^"]*"|[\\_*].|\[[^\]]*\]/g, ""));
}
