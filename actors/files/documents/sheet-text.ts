// Spreadsheet text: extracts the rows of the sheets of an Office Open XML file, with tabs between the cells.
import type { Entry, ZipFile } from "yauzl";
import { SheetDates } from "./sheet-dates.ts";
import { partsNamed, readXml } from "./xml-part.ts";

/** Maximum number of characters of shared strings that are read. Cells with later strings are shown as empty. */
const MAX_SHARED = 2 ** 20;
/** Maximum number of tabs for empty cells between two cells. */
export const maxGap = 100;

export async function sheetText(archive: ZipFile, entries: readonly Entry[], limit: number): Promise<string> {
  const shared = await sharedStrings(archive, entries);
  const dates = await SheetDates.read(archive, entries);
  let text = "";
  for (const entry of partsNamed(entries, /^xl\/worksheets\/sheet\d+\.xml$/)) {
    let type = "n";
    let style = "";
    let isText = false;
    let isPhonetic = false;
    let value = "";
    // Columns, from 0: of the current cell, and of the last cell that was written. Files leave out empty cells.
    let column = -1;
    let written = 0;
    await readXml(archive, entry, {
      open: (name, { t = "n", s = "0", r: position }) => {
        if (name === "row") [column, written] = [-1, 0];
        if (name === "c") [column, type, style, value] = [columnIn(position) ?? column + 1, t, s, ""];
        if (name === "v" || name === "t") isText = true;
        if (name === "rPh") isPhonetic = true;
      },
      text: (part) => {
        if (isText && !isPhonetic) value += part;
      },
      close: (name) => {
        if (name === "row") text += "\n";
        if (name === "v" || name === "t") isText = false;
        if (name === "rPh") isPhonetic = false;
        if (name !== "c" || value === "") return;
        const gap = Math.min(Math.max(column - written, 0), maxGap);
        text += "\t".repeat(gap);
        if (type === "s") text += shared[Number(value)] ?? "";
        else text += type === "n" ? dates.textOf(value, style) : value;
        written = column;
      },
      isDone: () => text.length >= limit,
    });
    if (text.length >= limit) break;
    text += "\n";
  }
  return text;
}

/** Returns the column of a cell's position, such as 27 for AB12; null if it is absent or has another form. */
function columnIn(position = ""): number | null {
  const [, letters] = /^([A-Z]{1,3})\d+$/.exec(position) ?? [];
  if (letters === undefined) return null;
  return [...letters].reduce((sum, letter) => sum * 26 + letter.charCodeAt(0) - 64, 0) - 1;
}

/** Reads the shared strings, to which cells refer by index. */
async function sharedStrings(archive: ZipFile, entries: readonly Entry[]): Promise<readonly string[]> {
  const strings: string[] = [];
  let length = 0;
  let isText = false;
  let isPhonetic = false;
  for (const entry of partsNamed(entries, /^xl\/sharedStrings\.xml$/)) {
    await readXml(archive, entry, {
      open: (name) => {
        if (name === "si") strings.push("");
        if (name === "t") isText = true;
        if (name === "rPh") isPhonetic = true;
      },
      text: (part) => {
        // Phonetic texts repeat how a string is pronounced.
        if (!isText || isPhonetic) return;
        strings.push((strings.pop() ?? "") + part);
        length += part.length;
      },
      close: (name) => {
        if (name === "t") isText = false;
        if (name === "rPh") isPhonetic = false;
      },
      isDone: () => length >= MAX_SHARED,
    });
  }
  return strings;
}
