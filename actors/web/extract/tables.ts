// Tables as markdown. Tables that are only used for page layout become blocks of text.
import { type DomElement, isElement } from "./dom.ts";

/** Elements that a markdown table cell cannot contain. */
const blocks = "table, pre, ul, ol, dl, blockquote, h1, h2, h3, h4, p + p, hr";
const maxColumns = 64;
/** Maximum number of rows. More rows would exceed the part of a page that models get. */
const maxRows = 2000;

/** Returns whether a table contains data (as opposed to layout), so that it becomes a markdown table. */
export function isDataTable(table: DomElement): boolean {
  if (table.querySelector("th, caption") !== null && table.querySelector("table, pre") === null) return true;
  if (table.getAttribute("role") === "presentation" || table.querySelector(blocks) !== null) return false;
  const rows = rowsOf(table);
  return rows.length > 1 && rows.every((row) => cellsOf(row).length > 1);
}

/** Returns a markdown table. `textOf`: returns the markdown of a cell's content. */
export function markdownTable(table: DomElement, textOf: (cell: DomElement) => string): string {
  const grid = gridOf(table, textOf);
  const width = Math.min(Math.max(...grid.map((row) => row.length), 1), maxColumns);
  const lines = grid.map((row) => `| ${Array.from({ length: width }, (_, i) => row[i] ?? "").join(" | ")} |`);
  const [head = "", ...body] = lines;
  const caption = table.querySelector("caption");
  const title = caption === null ? [] : [textOf(caption), ""];
  return [...title, head, `|${" --- |".repeat(width)}`, ...body].join("\n");
}

/** Returns the cells by row. Cells that span rows or columns are repeated. */
function gridOf(table: DomElement, textOf: (cell: DomElement) => string): readonly (readonly string[])[] {
  const grid: string[][] = [];
  const rows = rowsOf(table).slice(0, maxRows);
  rows.forEach((row, at) => {
    let column = 0;
    for (const cell of cellsOf(row)) {
      while (grid[at]?.[column] !== undefined) column++;
      const text = textOf(cell)
        .replaceAll(/\s*\n\s*/g, " ")
        .replaceAll("|", "\\|")
        .trim();
      const height = Math.min(span(cell, "rowspan"), rows.length - at);
      for (let down = 0; down < height; down++) {
        grid[at + down] ??= [];
        for (let right = 0; right < span(cell, "colspan"); right++)
          (grid[at + down] as string[])[column + right] = text;
      }
      column += span(cell, "colspan");
    }
    grid[at] ??= [];
  });
  return grid.map((row) => Array.from(row, (cell) => cell ?? "")).filter((row) => row.some((cell) => cell !== ""));
}

function span(cell: DomElement, name: string): number {
  return Math.min(Math.max(Number.parseInt(cell.getAttribute(name) ?? "1", 10) || 1, 1), maxColumns);
}

function rowsOf(table: DomElement): readonly DomElement[] {
  return [...table.children].flatMap((child) =>
    child.nodeName === "TR" ? [child] : ["THEAD", "TBODY", "TFOOT"].includes(child.nodeName) ? rowsOf(child) : [],
  );
}

function cellsOf(row: DomElement): readonly DomElement[] {
  return [...row.childNodes].filter(isElement).filter(({ nodeName }) => nodeName === "TD" || nodeName === "TH");
}
