// Passages of a page: splits its markdown into parts of a few sentences. Code blocks and tables are kept whole if they are short enough.

/** Length in characters up to which blocks are joined to one passage. A heading is always joined to the block after it. */
const joinedLength = 800;
/** Length in characters up to which a section is joined to the next one. */
const shortLength = 200;
/** Maximum length in characters of a block. Longer blocks are split. */
const maxLength = 1200;

/** Splits markdown into passages, in order. A heading belongs to the passage that follows it. */
export function passagesOf(markdown: string): readonly string[] {
  const passages: string[] = [];
  let current = "";
  for (const block of blocksOf(markdown)) {
    const isFull = current.length + block.length > joinedLength;
    const startsSection = block.startsWith("#") && current.length > shortLength;
    if (current !== "" && (isFull || startsSection) && !isHeading(current)) {
      passages.push(current);
      current = "";
    }
    current = current === "" ? block : `${current}\n\n${block}`;
  }
  if (current !== "") passages.push(current);
  return passages;
}

function isHeading(text: string): boolean {
  return text.startsWith("#") && !text.includes("\n");
}

/** Returns the blocks of a markdown text, which are separated by blank lines outside of code. Long blocks are split. */
function blocksOf(markdown: string): readonly string[] {
  const blocks: string[] = [];
  let lines: string[] = [];
  let fence: string | null = null;
  for (const line of markdown.split("\n")) {
    const [mark] = /^`{3,}/.exec(line) ?? [];
    if (mark !== undefined) fence = fence === null ? mark : line.startsWith(fence) ? null : fence;
    if (line.trim() === "" && fence === null) {
      blocks.push(lines.join("\n"));
      lines = [];
    } else lines.push(line);
  }
  blocks.push(lines.join("\n"));
  return blocks.filter((block) => block.trim() !== "").flatMap(divided);
}

/** Splits a block between lines or sentences, or else at any character. */
function divided(block: string): readonly string[] {
  const parts: string[] = [];
  let rest = block;
  while (rest.length > maxLength) {
    const head = rest.slice(0, maxLength);
    const end = Math.max(head.lastIndexOf("\n"), head.lastIndexOf(". "), head.lastIndexOf("。"));
    const length = end > maxLength / 2 ? end + 1 : wholeLength(rest, maxLength);
    parts.push(rest.slice(0, length));
    rest = rest.slice(length);
  }
  return [...parts, rest];
}

/** Returns `length`, reduced by one if a cut of the text at this length would split a surrogate pair. */
export function wholeLength(text: string, length: number): number {
  const isHalf = length < text.length && /[\ud800-\udbff]/.test(text.charAt(length - 1));
  return isHalf ? length - 1 : length;
}
