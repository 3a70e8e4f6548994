// Text of office documents: Office Open XML and OpenDocument. Both are zip archives of XML parts. Parts are read as
// streams, and only until there is enough text. So a small archive that contains a huge part takes little time and
// memory.
import { type Entry, openPromise, type ZipFile } from "yauzl";
import type { DocumentKind } from "./document-kind.ts";
import { sheetText } from "./sheet-text.ts";
import { partsNamed, readXml } from "./xml-part.ts";

type OfficeKind = Exclude<DocumentKind, "pdf">;

/** Where the text is in a kind of document. The names of elements have no namespace prefix. */
interface Layout {
  /** Pattern of the names of the parts with text. The parts are read in the order of the numbers in their names. */
  readonly parts: RegExp;
  readonly texts: ReadonlySet<string>;
  /** Text to add at the end of an element, by the element's name. */
  readonly ends: Readonly<Record<string, string>>;
}

const layouts: Readonly<Record<Exclude<OfficeKind, "sheet">, Layout>> = {
  word: { parts: /^word\/document\.xml$/, texts: new Set(["t"]), ends: { p: "\n", br: "\n", tab: "\t" } },
  slides: { parts: /^ppt\/slides\/slide\d+\.xml$/, texts: new Set(["t"]), ends: { p: "\n", br: "\n" } },
  opendocument: {
    parts: /^content\.xml$/,
    texts: new Set(["p", "h"]),
    ends: { p: "\n", h: "\n", "line-break": "\n", tab: "\t", s: " ", "table-row": "\n" },
  },
};

const MAX_ENTRIES = 10_000;

/** Reads parts until there are `limit` characters. Throws if the archive is damaged. */
export async function officeText(path: string, kind: OfficeKind, limit: number): Promise<string> {
  const archive = await openPromise(path, { autoClose: false });
  try {
    const entries = await entriesOf(archive);
    return kind === "sheet"
      ? await sheetText(archive, entries, limit)
      : await partsText(archive, entries, layouts[kind], limit);
  } finally {
    archive.close();
  }
}

async function partsText(
  archive: ZipFile,
  entries: readonly Entry[],
  { parts, texts, ends }: Layout,
  limit: number,
): Promise<string> {
  let text = "";
  let depth = 0;
  for (const entry of partsNamed(entries, parts)) {
    await readXml(archive, entry, {
      open: (name) => {
        if (texts.has(name)) depth++;
      },
      text: (part) => {
        if (depth > 0) text += part;
      },
      close: (name) => {
        if (texts.has(name)) depth--;
        text += ends[name] ?? "";
      },
      isDone: () => text.length >= limit,
    });
    if (text.length >= limit) break;
    text += "\n";
  }
  return text;
}

async function entriesOf(archive: ZipFile): Promise<readonly Entry[]> {
  const entries: Entry[] = [];
  for await (const entry of archive.eachEntry()) {
    entries.push(entry);
    if (entries.length === MAX_ENTRIES) break;
  }
  return entries;
}
