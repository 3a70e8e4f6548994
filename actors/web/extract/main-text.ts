// Main text of a page: finds the element that contains the main text.
import { Readability } from "@mozilla/readability";
import { linkedLength, linkShare, listAndHeading } from "./cleaning/structure.ts";
import { type DomDocument, type DomElement, mainShare, parseDocument, plainText, textNode } from "./dom.ts";

/** Minimum text length in characters for an element to count as the main text; on short pages, half of all text. */
const minLength = 140;
/** Minimum length of another article, relative to the longest one, for the articles to count as posts of one page. */
const otherShare = 0.3;
/**
 * Minimum fraction of the page's text that Readability must find for its result to be used. On a page with many posts, it finds
 * only one post.
 */
const minShare = 0.5;
/** Minimum fraction of Readability's text that the main element must contain. */
const coreShare = 0.95;
/** Maximum length of the main element, relative to Readability's text, which omits parts of lists. */
const maxCore = 2;
/** Maximum length of the element that also contains the main heading, relative to the main element without it. */
const maxWidening = 1.5;
/** Maximum number of elements of a page for which Readability is used. It takes several times as long as the rest of the extraction. */
const maxElements = 15_000;
const minLinks = 3;
/** If lists of links have at least this fraction of the page's text, they are its main text. */
const maxLinkLists = 0.8;
/** Tag names of elements that can contain a text with its paragraphs. */
const containers = new Set(["BODY", "DIV", "SECTION", "ARTICLE", "MAIN", "TD", "CENTER"]);
const mark = "data-element";

/** Returns the element that contains the main text of a cleaned document. */
export function mainElement(document: DomDocument): DomElement {
  const total = plainText(document.body).length;
  for (const selector of ["main, [role=main]", "article"]) {
    const found = longOnes([...document.querySelectorAll(selector)], Math.min(minLength, total / 2));
    const [only, ...others] = found;
    if (only === undefined) continue;
    if (others.every((other) => only.contains(other))) return articleOf(only);
    const around = commonParent(only, others);
    if (plainText(around).length >= mainShare * total) return withMainHeading(around);
  }
  removeLinkLists(document);
  return readable(document) ?? document.body;
}

/** Returns the longest element and the elements that are not much shorter; empty if the longest one has fewer than `enough` characters. */
function longOnes(elements: readonly DomElement[], enough: number): readonly DomElement[] {
  const lengths = elements.map((element) => plainText(element).length);
  const longest = Math.max(0, ...lengths);
  return elements.filter((_element, at) => longest >= enough && (lengths[at] ?? 0) >= otherShare * longest);
}

/** Returns the smallest element that contains all the given elements. */
function commonParent(first: DomElement, others: readonly DomElement[]): DomElement {
  let around = first;
  while (around.parentNode !== null && !others.every((other) => around.contains(other))) around = around.parentNode;
  return around;
}

/** Returns the article in a main element if it is the only article, contains the heading, and has most of the text; else `main`. */
function articleOf(main: DomElement): DomElement {
  const length = (element: DomElement): number => plainText(element).length;
  const [longest, ...others] = [...main.querySelectorAll("article")].sort((a, b) => length(b) - length(a));
  if (longest === undefined || length(longest) < mainShare * length(main)) return main;
  if (main.querySelector("h1") !== null && longest.querySelector("h1") === null) return main;
  const hasOther = others.some((other) => !longest.contains(other) && length(other) >= otherShare * length(longest));
  return hasOther ? main : longest;
}

/** Returns the element around the text that Readability finds; null = Readability finds too little, or the page is too large for it. */
function readable(document: DomDocument): DomElement | null {
  const elements = [...document.querySelectorAll("body, body *")];
  if (elements.length > maxElements) return null;
  elements.forEach((element, at) => {
    element.setAttribute(mark, String(at));
  });
  const options = { keepClasses: true, charThreshold: minLength, disableJSONLD: true };
  const article = new Readability(document.cloneNode(true) as never, options).parse();
  if (article?.content == null) return null;
  const { body } = parseDocument(article.content);
  const length = plainText(body).length;
  if (length < minShare * plainText(document.body).length) return null;
  const core = coreOf(body, elements);
  return core === undefined || plainText(core).length > maxCore * length ? body : withMainHeading(core);
}

/** Returns the smallest element of the document that contains nearly all of Readability's text. */
function coreOf(found: DomElement, elements: readonly DomElement[]): DomElement | undefined {
  const lengths = elements.map(() => 0);
  const add = (element: DomElement | null, length: number): void => {
    const at = Number(element?.getAttribute(mark) ?? 0);
    lengths[at] = (lengths[at] ?? 0) + length;
  };
  for (const element of found.querySelectorAll("*")) add(element.closest(`[${mark}]`), ownLength(element));
  for (const [at, element] of [...elements.entries()].reverse()) if (at > 0) add(element.parentNode, lengths[at] ?? 0);
  const enough = coreShare * (lengths[0] ?? 0);
  return elements.findLast((element, at) => containers.has(element.nodeName) && (lengths[at] ?? 0) >= enough);
}

/** Returns the length of an element's own text, without the text of its child elements. */
function ownLength(element: DomElement): number {
  const texts = [...element.childNodes].filter(({ nodeType }) => nodeType === textNode);
  return texts.reduce((sum, text) => sum + plainText(text).length, 0);
}

/**
 * Returns the smallest ancestor that also contains the main heading, because Readability omits subtitles, authors and dates.
 * Returns the element itself if that ancestor is much longer.
 */
function withMainHeading(core: DomElement): DomElement {
  let wider: DomElement | null = core;
  while (wider !== null && wider.querySelector("h1") === null) wider = wider.parentNode;
  return wider === null || plainText(wider).length > maxWidening * plainText(core).length ? core : wider;
}

/** Removes lists of links, except in running text and on pages that contain hardly anything else. */
function removeLinkLists(document: DomDocument): void {
  const total = plainText(document.body).length;
  const lists = [...document.querySelectorAll("ul, ol, td, div, p")].filter(isLinkList);
  const outer = outermost(lists);
  const length = outer.reduce((sum, list) => sum + plainText(list).length, 0);
  if (length >= maxLinkLists * total) return;
  for (const list of outer) if (!isInText(list)) for (const element of listAndHeading(list)) element.remove();
}

/** Returns the elements that are not contained in another one. `elements` must be in document order. */
function outermost(elements: readonly DomElement[]): readonly DomElement[] {
  const outer: DomElement[] = [];
  for (const element of elements) if (outer.at(-1)?.contains(element) !== true) outer.push(element);
  return outer;
}

function isLinkList(block: DomElement): boolean {
  return block.querySelector("pre, h1") === null && consistsOfLinks(block, linkShare);
}

/** Returns whether a list follows a heading or a paragraph in a block that is not navigation. */
function isInText(list: DomElement): boolean {
  const block = list.parentNode;
  if (block === null || !["UL", "OL"].includes(list.nodeName)) return false;
  return /^(?:P|H[2-6])$/.test(list.previousElementSibling?.nodeName ?? "") && !consistsOfLinks(block, mainShare);
}

function consistsOfLinks(block: DomElement, share: number): boolean {
  const links = [...block.querySelectorAll("a[href]")];
  return links.length >= minLinks && linkedLength(links) >= share * plainText(block).length;
}
