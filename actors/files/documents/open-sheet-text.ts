// Spreadsheet text: extracts the rows of the sheets of an OpenDocument file, with tabs between the cells.
import type { Entry, ZipFile } from "yauzl";
import { maxGap } from "./sheet-text.ts";
import { partsNamed, readXml } from "./xml-part.ts";

type Attributes = Readonly<Record<string, string>>;

/** Elements of OpenDocument files that the reader of a document does not see as text: deleted text, comments, pronunciations. */
export const openDocumentHidden: ReadonlySet<string> = new Set(["tracked-changes", "annotation", "ruby-text"]);

/** Returns the spaces that an element of an OpenDocument text stands for; empty for other elements. */
export function spacesOf(name: string, attributes: Attributes): string {
  return name === "s" ? " ".repeat(Math.min(times(attributes["text:c"]), maxGap)) : "";
}

export async function openSheetText(archive: ZipFile, entries: readonly Entry[], limit: number): Promise<string> {
  const sheet = new SheetText(limit);
  for (const entry of partsNamed(entries, /^content\.xml$/)) await readXml(archive, entry, sheet);
  return sheet.end();
}

const cells: ReadonlySet<string> = new Set(["table-cell", "covered-table-cell"]);
const texts: ReadonlySet<string> = new Set(["p", "h"]);
const characters: Readonly<Record<string, string>> = { p: "\n", h: "\n", "line-break": "\n", tab: "\t" };

/** Text of the sheets. Cells and rows that the file repeats are repeated, until there are `limit` characters. */
class SheetText {
  readonly #limit: number;
  #text = "";
  #row = "";
  #rowTimes = 1;
  /** Columns, from 0: of the current cell, and of the last cell that was written. Empty cells at the end of a row are left out. */
  #column = 0;
  #written = 0;
  /** Text of the open cell; null = no cell is open. */
  #cell: string | null = null;
  #cellTimes = 1;
  /** Numbers of open elements: of texts, and of those that are left out. */
  #depth = 0;
  #hiddenDepth = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  open(name: string, attributes: Attributes): void {
    if (openDocumentHidden.has(name)) this.#hiddenDepth++;
    if (this.#hiddenDepth > 0) return;
    if (texts.has(name)) this.#depth++;
    if (name === "table-row") {
      [this.#row, this.#column, this.#written] = ["", 0, 0];
      this.#rowTimes = times(attributes["table:number-rows-repeated"]);
    }
    if (cells.has(name)) [this.#cell, this.#cellTimes] = ["", times(attributes["table:number-columns-repeated"])];
    this.#add(spacesOf(name, attributes));
  }

  text(part: string): void {
    if (this.#depth > 0 && this.#hiddenDepth === 0) this.#add(part);
  }

  close(name: string): void {
    if (openDocumentHidden.has(name)) this.#hiddenDepth--;
    else if (this.#hiddenDepth === 0) {
      if (texts.has(name)) this.#depth--;
      this.#add(characters[name] ?? "");
      if (cells.has(name)) this.#endCell();
      if (name === "table-row") this.#endRow();
      if (name === "table") this.#text += "\n";
    }
  }

  isDone(): boolean {
    return this.#text.length + this.#row.length + (this.#cell?.length ?? 0) >= this.#limit;
  }

  /** Returns the text. The last row may be unfinished, if the rest of the file was skipped. */
  end(): string {
    this.#endCell();
    return this.#text + this.#row;
  }

  #add(part: string): void {
    if (this.#cell === null) this.#text += part;
    else this.#cell += part;
  }

  #endCell(): void {
    const value = this.#cell?.trimEnd() ?? "";
    this.#cell = null;
    if (value !== "") {
      const gap = Math.min(this.#column - this.#written, maxGap);
      this.#row += "\t".repeat(gap) + value;
      this.#row += this.#repeated(`\t${value}`, this.#cellTimes - 1, this.#text.length + this.#row.length);
      this.#written = this.#column + this.#cellTimes - 1;
    }
    this.#column += this.#cellTimes;
  }

  #endRow(): void {
    const line = `${this.#row}\n`;
    this.#text += line;
    if (this.#row !== "") this.#text += this.#repeated(line, this.#rowTimes - 1, this.#text.length);
    this.#row = "";
  }

  /** Returns `part` repeated, but no more often than is needed to reach the limit after `length` characters. */
  #repeated(part: string, count: number, length: number): string {
    return part.repeat(Math.min(count, Math.max(0, Math.ceil((this.#limit - length) / part.length))));
  }
}

/** Reads a count of repetitions. A count that is missing, or that is no number above 0, is 1. */
function times(count = "1"): number {
  return Math.max(1, Math.trunc(Number(count)) || 1);
}
