// Text of office documents in Office Open XML and OpenDocument formats. Both are zip archives of XML parts. The parts are read as
// streams, and reading stops when there is enough text. So a small archive with a huge part (zip bomb) takes little time and
// memory.
import { type Entry, openPromise, type ZipFile } from "yauzl";
import type { DocumentKind } from "./document-kind.ts";
import { sheetText } from "./sheet-text.ts";
import { partsNamed, readXml } from "./xml-part.ts";

type OfficeKind = Exclude<DocumentKind, "pdf">;

/** Where the text is in the XML parts of a document type. Element names are given without namespace prefix. */
interface Layout {
  /** Pattern of the names of the XML parts that contain text. The parts are read in the order of the numbers in their names. */
  readonly parts: RegExp;
  readonly texts: ReadonlySet<string>;
  /** Text to append at the end of an element, by element name. */
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

/** Extracts text until there are `limit` characters. Throws if the archive is damaged. */
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
