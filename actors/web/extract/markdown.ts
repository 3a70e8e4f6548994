// Markdown of an element: turndown with custom rules for tables, code, links, images, formulas and definition lists.
import Turndown from "turndown";
import { fencedCode } from "./code.ts";
import { type DomElement, plainText } from "./dom.ts";
import { isDataTable, markdownTable } from "./tables.ts";

/** Returns the markdown of an element. Relative links become absolute. */
export function markdownOf(root: DomElement, baseUrl: string): string {
  const turndown = converter(baseUrl);
  const markdown = turndown.turndown(root as never);
  return markdown
    .replaceAll(/[\t\u00a0 ]+$/gm, "")
    .replaceAll(/\n{3,}/g, "\n\n")
    .trim();
}

type Replacement = (content: string, element: DomElement) => string;

function converter(baseUrl: string): Turndown {
  const turndown = new Turndown({ headingStyle: "atx", codeBlockStyle: "fenced", bulletListMarker: "-" });
  // The text is read by models and searched, and escapes would change its words.
  turndown.escape = (text) => text;
  const add = (name: string, filter: (element: DomElement) => boolean, replacement: Replacement): void => {
    turndown.addRule(name, {
      filter: ((element: DomElement) => filter(element)) as never,
      replacement: ((content: string, element: DomElement) => replacement(content, element)) as never,
    });
  };
  const named =
    (...names: readonly string[]) =>
    ({ nodeName }: DomElement): boolean =>
      names.includes(nodeName.toUpperCase());
  const cellText = (cell: DomElement): string => converterText(turndown, cell);
  add("code block", named("PRE"), (_content, pre) => `\n\n${fencedCode(pre)}\n\n`);
  add("list item", named("LI"), listItem);
  add("image", named("IMG", "AMP-IMG"), (_content, image) => image.getAttribute("alt")?.trim() ?? "");
  add("link", named("A"), (content, link) => linked(content, link.getAttribute("href"), baseUrl));
  add("caption", named("FIGCAPTION"), (content) => `\n\n${content.trim()}\n\n`);
  add("term", named("DT"), (content) => `\n\n**${content.trim()}**\n`);
  add("definition", named("DD"), (content) => `\n: ${content.trim().replaceAll("\n", "\n  ")}\n`);
  add("superscript", named("SUP"), (content) => (content.trim() === "" ? "" : `^${content}`));
  add("subscript", named("SUB"), (content) => (content.trim() === "" ? "" : `_${content}`));
  add("formula", named("MATH"), (_content, math) => formula(math));
  add("struck", named("DEL", "S", "STRIKE"), (content) => `~~${content}~~`);
  add("rows of a layout", named("TR", "TD", "TH"), (content) => `\n\n${content}\n\n`);
  add("table", isTable, (_content, table) => `\n\n${markdownTable(table, cellText)}\n\n`);
  return turndown;
}

/** Returns a list item. Its continuation lines are indented by the width of its bullet or number. */
function listItem(content: string, item: DomElement): string {
  const list = item.parentNode;
  const items = list === null ? [] : [...list.children].filter(({ nodeName }) => nodeName === "LI");
  const first = Number.parseInt(list?.getAttribute("start") ?? "1", 10) || 1;
  const mark = list?.nodeName === "OL" ? `${first + items.indexOf(item)}. ` : "- ";
  const text = content.trim().replaceAll("\n", `\n${" ".repeat(mark.length)}`);
  return `${mark}${text}\n`;
}

function converterText(turndown: Turndown, cell: DomElement): string {
  return plainText(cell) === "" && cell.querySelector("img") === null ? "" : turndown.turndown(cell as never);
}

function isTable(element: DomElement): boolean {
  return element.nodeName === "TABLE" && isDataTable(element);
}

/** Returns a markdown link. A link without a text, or with a scheme other than http and https, becomes plain text. */
function linked(content: string, href: string | null, baseUrl: string): string {
  const text = content.replaceAll(/\s+/g, " ").trim();
  if (text === "" || href === null || href.startsWith("#") || content.includes("\n\n")) return content;
  const url = URL.canParse(href, baseUrl) ? new URL(href, baseUrl) : null;
  if (url === null || !/^https?:$/.test(url.protocol)) return content;
  return `[${text}](${url.href})`;
}

function formula(math: DomElement): string {
  const source = math.querySelector("annotation")?.textContent ?? math.getAttribute("alttext");
  return source == null ? plainText(math) : `$${source.trim()}$`;
}
