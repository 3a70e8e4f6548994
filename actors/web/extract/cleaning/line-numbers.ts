// Line numbers of code blocks: removes them, whether they are in a separate column or at the beginning of each line.
import { type DomDocument, type DomElement, plainText } from "../dom.ts";

const named = ".lineno, .linenos, .line-numbers-rows, .gutter, .lnt, pre .ln";

export function removeLineNumbers(document: DomDocument): void {
  for (const element of document.querySelectorAll(named)) element.remove();
  const rows = new Set([...document.querySelectorAll("td pre")].map((pre) => pre.closest("tr")));
  for (const row of rows) if (row !== null) removeColumns(row);
  for (const pre of document.querySelectorAll("pre")) for (const number of numbersIn(pre)) number.remove();
}

/** Removes the table cells next to a code block that contain nothing but line numbers. */
function removeColumns(row: DomElement): void {
  const cells = [...row.children];
  const numbers = cells.filter(isColumn);
  const hasCode = cells.some((cell) => !numbers.includes(cell) && cell.querySelector("pre") !== null);
  if (hasCode) for (const cell of numbers) cell.remove();
}

function isColumn(cell: DomElement): boolean {
  const text = (cell.textContent ?? "").trim();
  return /^\d+(?:\s+\d+)*$/.test(text) && isSequence(text.split(/\s+/));
}

/** Returns the elements that contain the line numbers of a code block: one per line, all with the same class. */
function numbersIn(pre: DomElement): readonly DomElement[] {
  const numbers = [...pre.querySelectorAll("span, a, i, b")].filter((element) => /^\d+$/.test(plainText(element)));
  const [first] = numbers;
  const lines = numbers.filter((element) => element.className === first?.className);
  const count = (pre.textContent ?? "").trim().split("\n").length;
  return lines.length > 1 && lines.length === count && isSequence(lines.map(plainText)) ? lines : [];
}

function isSequence(numbers: readonly string[]): boolean {
  return numbers.every((number, at) => Number(number) === Number(numbers[0]) + at);
}
