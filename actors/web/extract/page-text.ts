// Text of a page: extracts its title, and its main text as markdown.
import { wholeLength } from "../ranking/passages.ts";
import { decodeText } from "./charset.ts";
import { clean } from "./cleaning/clean.ts";
import { type DomDocument, parseDocument, plainText } from "./dom.ts";
import { mainElement } from "./main-text.ts";
import { markdownOf } from "./markdown.ts";

/** Maximum number of characters of a text. Longer texts are truncated. */
export const maxTextLength = 262_144;
const maxTitleLength = 512;

export interface ExtractedText {
  readonly title: string;
  readonly text: string;
  readonly isCut: boolean;
}

/** Returns the text of a page. `contentType`: value of the content-type header. Types other than HTML are used as plain text. */
export function pageText(bytes: Uint8Array, contentType: string, url: string): ExtractedText {
  const source = decodeText(bytes, contentType);
  if (!isHtml(contentType)) return cut("", source.trim());
  const document = parseDocument(source);
  const title = titleOf(document);
  const description = document.querySelector('meta[name="description"]')?.getAttribute("content") ?? "";
  const base = document.querySelector("base[href]")?.getAttribute("href") ?? "";
  clean(document);
  const heading = plainText(document.querySelector("h1"));
  const text = markdownOf(mainElement(document), URL.canParse(base, url) ? new URL(base, url).href : url);
  return cut(title, text === "" ? description : underHeading(text, heading));
}

/** Adds the page's heading before a text that does not contain it, because Readability removes a heading that repeats the title. */
function underHeading(text: string, heading: string): string {
  return heading === "" || text.includes(heading) ? text : `# ${heading}\n\n${text}`;
}

/** Returns whether the content is HTML. A page without a content type counts as HTML. */
function isHtml(contentType: string): boolean {
  return contentType === "" || /^\s*(?:text\/html|application\/xhtml\+xml)/i.test(contentType);
}

function titleOf(document: DomDocument): string {
  const shared = document.querySelector('meta[property="og:title"]')?.getAttribute("content") ?? "";
  return shared.trim() || plainText(document.querySelector("title")) || plainText(document.querySelector("h1"));
}

function cut(title: string, text: string): ExtractedText {
  return {
    title: title.slice(0, wholeLength(title, maxTitleLength)),
    text: text.slice(0, maxTextLength),
    isCut: text.length > maxTextLength,
  };
}
