// Code blocks of a page: extracts their lines and their language.
import { type DomElement, type DomNode, isElement, textNode } from "./dom.ts";

const lineElements = new Set(["DIV", "P", "LI", "TR"]);
const sections = new Set(["ARTICLE", "MAIN", "SECTION", "BODY", "HTML"]);
/** Number of ancestors of a code block whose classes may name its language. */
const maxLevels = 8;
const languageClass =
  /(?:^|\s)(?:language|lang|brush:|highlight-source|highlight-text|source-code)[-:\s]\s*([\w+#.-]+)/i;

/** Returns a code block as fenced markdown. */
export function fencedCode(pre: DomElement): string {
  const code = codeText(pre).replaceAll("\r\n", "\n").replace(/^\n/, "").replace(/\s+$/, "");
  const longest = Math.max(2, ...[...code.matchAll(/^`{3,}/gm)].map(([fence]) => fence.length));
  const fence = "`".repeat(longest + 1);
  return `${fence}${languageOf(pre)}\n${code}\n${fence}`;
}

/** Returns the text with a line break for each `<br>` and after each element that represents a line. */
function codeText(node: DomNode): string {
  if (node.nodeType === textNode) return node.textContent ?? "";
  if (node.nodeName === "BR") return "\n";
  if (!isElement(node)) return "";
  const text = [...node.childNodes].map(codeText).join("");
  return lineElements.has(node.nodeName) && !text.endsWith("\n") ? `${text}\n` : text;
}

function languageOf(pre: DomElement): string {
  for (const element of [pre.querySelector("code"), ...ancestors(pre)]) {
    const data = element?.getAttribute("data-lang") ?? element?.getAttribute("data-language");
    const [, named] = languageClass.exec(element?.getAttribute("class") ?? "") ?? [];
    const language = data ?? named ?? "";
    if (/^[\w+#.-]{1,32}$/.test(language)) return language.toLowerCase();
  }
  return "";
}

/** Yields an element and its ancestors that may belong to the code block. */
function* ancestors(element: DomElement): Generator<DomElement> {
  let at: DomElement | null = element;
  for (let level = 0; level < maxLevels && at !== null && !sections.has(at.nodeName); level++) {
    yield at;
    at = at.parentNode;
  }
}
