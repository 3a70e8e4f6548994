// Text of office documents in Office Open XML and OpenDocument formats. Both are zip archives of XML parts. The parts are read as
// streams, and reading stops when there is enough text. So a small archive with a huge part (zip bomb) takes little time and
// memory.
import { type Entry, openPromise, type ZipFile } from "yauzl";
import type { DocumentKind } from "./document-kind.ts";
import { openDocumentHidden, openSheetText, spacesOf } from "./open-sheet-text.ts";
import { sheetText } from "./sheet-text.ts";
import { partsNamed, readXml } from "./xml-part.ts";

type OfficeKind = Exclude<DocumentKind, "pdf">;

/** Where the text is in the XML parts of a document type. Element names are given without namespace prefix. */
interface Layout {
  /** Pattern of the names of the XML parts that contain text. The parts are read in the order of the numbers in their names. */
  readonly parts: RegExp;
  readonly texts: ReadonlySet<string>;
  /** Elements that are left out with all they contain. */
  readonly hidden: ReadonlySet<string>;
  /** Text to append at the start and at the end of an element, by element name. */
  readonly starts?: Readonly<Record<string, string>>;
  readonly ends: Readonly<Record<string, string>>;
}

const layouts: Readonly<Record<Exclude<OfficeKind, "sheet" | "opensheet">, Layout>> = {
  word: {
    parts: /^word\/document\.xml$/,
    texts: new Set(["t"]),
    // Fallback repeats a text box for older programs, moveFrom a text that was moved. tabs has positions of tabs. rt is a pronunciation.
    hidden: new Set(["Fallback", "moveFrom", "tabs", "rt"]),
    ends: { p: "\n", br: "\n", tab: "\t" },
  },
  slides: {
    parts: /^ppt\/slides\/slide\d+\.xml$/,
    texts: new Set(["t"]),
    hidden: new Set(["Fallback"]),
    ends: { p: "\n", br: "\n" },
  },
  opendocument: {
    parts: /^content\.xml$/,
    texts: new Set(["p", "h"]),
    hidden: openDocumentHidden,
    // A footnote is inside the paragraph that it belongs to.
    starts: { "note-citation": " [", "note-body": " " },
    ends: { p: "\n", h: "\n", "line-break": "\n", tab: "\t", "table-row": "\n", note: "]" },
  },
};

const MAX_ENTRIES = 10_000;

/** Extracts text until there are `limit` characters. Throws if the archive is damaged. */
export async function officeText(path: string, kind: OfficeKind, limit: number): Promise<string> {
  const archive = await openPromise(path, { autoClose: false });
  try {
    const entries = await entriesOf(archive);
    if (kind === "sheet") return await sheetText(archive, entries, limit);
    if (kind === "opensheet") return await openSheetText(archive, entries, limit);
    return await partsText(archive, entries, layouts[kind], limit);
  } finally {
    archive.close();
  }
}

async function partsText(
  archive: ZipFile,
  entries: readonly Entry[],
  { parts, texts, hidden, starts = {}, ends }: Layout,
  limit: number,
): Promise<string> {
  let text = "";
  // Numbers of open elements: of texts, and of those that are left out.
  let depth = 0;
  let hiddenDepth = 0;
  for (const entry of partsNamed(entries, parts)) {
    await readXml(archive, entry, {
      open: (name, attributes) => {
        if (hidden.has(name)) hiddenDepth++;
        if (hiddenDepth > 0) return;
        if (texts.has(name)) depth++;
        text += (starts[name] ?? "") + spacesOf(name, attributes);
      },
      text: (part) => {
        if (depth > 0 && hiddenDepth === 0) text += part;
      },
      close: (name) => {
        if (hidden.has(name)) hiddenDepth--;
        else if (hiddenDepth === 0) {
          if (texts.has(name)) depth--;
          text += ends[name] ?? "";
        }
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
