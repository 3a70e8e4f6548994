// Spreadsheet text: extracts the rows of the sheets of an Office Open XML file, with tabs between the cells.
import type { Entry, ZipFile } from "yauzl";
import { partsNamed, readXml } from "./xml-part.ts";

/** Maximum number of characters of shared strings that are read. Cells with later strings are shown as empty. */
const MAX_SHARED = 2 ** 20;

export async function sheetText(archive: ZipFile, entries: readonly Entry[], limit: number): Promise<string> {
  const shared = await sharedStrings(archive, entries);
  let text = "";
  for (const entry of partsNamed(entries, /^xl\/worksheets\/sheet\d+\.xml$/)) {
    let isShared = false;
    let value: string | null = null;
    let isFirst = true;
    await readXml(archive, entry, {
      open: (name, { t: type }) => {
        if (name === "row") isFirst = true;
        if (name === "c") isShared = type === "s";
        if (name === "v" || name === "t") value = "";
      },
      text: (part) => {
        if (value !== null) value += part;
      },
      close: (name) => {
        if (name === "row") text += "\n";
        if ((name !== "v" && name !== "t") || value === null) return;
        text += `${isFirst ? "" : "\t"}${isShared ? (shared[Number(value)] ?? "") : value}`;
        isFirst = false;
        value = null;
      },
      isDone: () => text.length >= limit,
    });
    if (text.length >= limit) break;
    text += "\n";
  }
  return text;
}

/** Reads the shared strings, to which cells refer by index. */
async function sharedStrings(archive: ZipFile, entries: readonly Entry[]): Promise<readonly string[]> {
  const strings: string[] = [];
  let length = 0;
  let isText = false;
  for (const entry of partsNamed(entries, /^xl\/sharedStrings\.xml$/)) {
    await readXml(archive, entry, {
      open: (name) => {
        if (name === "si") strings.push("");
        if (name === "t") isText = true;
      },
      text: (part) => {
        if (!isText) return;
        strings.push((strings.pop() ?? "") + part);
        length += part.length;
      },
      close: (name) => {
        if (name === "t") isText = false;
      },
      isDone: () => length >= MAX_SHARED,
    });
  }
  return strings;
}
