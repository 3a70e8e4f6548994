// Blocks of a markdown text. A block followed by another block no longer changes while the text grows, so only the last block
// of a streamed answer is rendered again.

/** Splits a text into blocks, in order. Joined, they equal the text. */
export function blocksOf(text: string): readonly string[] {
  const blocks: string[] = [];
  let start = 0;
  let fence: string | null = null;
  let isBlank = false;
  for (let at = 0; at < text.length; ) {
    const found = text.indexOf("\n", at);
    const end = found === -1 ? text.length : found + 1;
    const line = text.slice(at, end);
    const mark = /^ {0,3}(`{3,}|~{3,}|\$\$)/.exec(line)?.[1];
    if (fence !== null) {
      if (mark?.startsWith(fence) === true && line.trim() === mark) fence = null;
    } else {
      if (isBlank && begins(line)) {
        blocks.push(text.slice(start, at));
        start = at;
      }
      if (mark !== undefined && !(mark === "$$" && line.trim().length > 2)) fence = mark;
    }
    isBlank = fence === null && line.trim() === "";
    at = end;
  }
  if (start < text.length) blocks.push(text.slice(start));
  return blocks;
}

/**
 * Returns whether a line after a blank line begins a new block. Indented lines and list items may continue the previous block.
 */
function begins(line: string): boolean {
  return line.trim() !== "" && !/^(?:\s|[-*+] |\d{1,9}[.)] )/.test(line);
}
