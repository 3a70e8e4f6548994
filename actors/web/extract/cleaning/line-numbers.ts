// Line numbers of code blocks: removes them, whether they stand in a column of their own or before each line.
import { type DomDocument, type DomElement, plainText } from "../dom.ts";

const named = ".lineno, .linenos, .line-numbers-rows, .gutter, .lnt, pre .ln";

export function removeLineNumbers(document: DomDocument): void {
  for (const element of document.querySelectorAll(named)) element.remove();
  for (const cell of document.querySelectorAll("td")) if (isColumn(cell)) cell.remove();
  for (const pre of document.querySelectorAll("pre")) for (const number of numbersIn(pre)) number.remove();
}

/** Whether a cell beside a code block contains nothing but the numbers of its lines. */
function isColumn(cell: DomElement): boolean {
  const isBesideCode = [...(cell.parentNode?.children ?? [])].some(
    (other) => other !== cell && other.querySelector("pre") !== null,
  );
  const text = (cell.textContent ?? "").trim();
  return isBesideCode && /^\d+(?:\s+\d+)*$/.test(text) && isSequence(text.split(/\s+/));
}

/** Returns the elements of a code block that number its lines: as many as it has lines, all of one class. */
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
