// Boilerplate by name: removes elements whose class or id indicates that they are not the main text of the page.
import { type DomDocument, type DomElement, mainShare, plainText } from "../dom.ts";
import type { PageKind } from "./page-kind.ts";

/** Words in a class or id that mark an element as boilerplate. */
const junkWords = words(
  "ad ads advert advertisement adsense banner breadcrumb breadcrumbs catlinks crumbs consent cookie cookies disqus dropdown feedback footer gdpr masthead menu modal nav navbar navigation navbox newsletter noprint pager pagination popup promo recommended related relatedposts share sharing sidebar signup skip skiplink social sponsor sponsored subscribe toc toolbar upsell widget",
);
/** Words that mark boilerplate, except on pages that are discussions. */
const commentWords = words("comment comments commentlist");
/** Words that mark boilerplate on product pages. */
const reviewWords = words("rating ratings review reviews testimonials");
/** Word pairs that mark boilerplate, although the single words do not. */
const junkPairs = /\b(?:author (?:bio|box|card)|(?:read|reading) time|jump (?:box|link)|print (?:button|link))\b/;
/** Minimum number of characters in the paragraphs of an article. */
const minArticle = 400;
const headings = "h1, h2, h3, h4, h5, h6";
/** If at least this many sections have an id derived from their heading, the page generates such ids. */
const minNamedSections = 3;

export function removeByName(document: DomDocument, kind: PageKind): void {
  const total = plainText(document.body).length;
  const named = namedSections(document);
  const junk = junkOf(isThread(document) ? "discussion" : kind);
  for (const element of document.querySelectorAll("body [class], body [id]")) {
    const names = namesOf(element, !named.has(element));
    if (isPartOfText(element) || !isJunk(names, junk)) continue;
    if (plainText(element).length < mainShare * total) removeButHeading(element, document);
  }
}

/** Returns whether the page is a thread: most of its text is in comments, and the other paragraphs are shorter than an article. */
function isThread(document: DomDocument): boolean {
  const isComment = (element: DomElement): boolean => hasWord(element, commentWords);
  const named = [...document.querySelectorAll("body [class], body [id]")].filter(isComment);
  const comments = named.filter((element) => !isInside(element, isComment));
  if (lengthOf(comments) < mainShare * plainText(document.body).length) return false;
  const texts = [...document.querySelectorAll("p, pre, blockquote")];
  return lengthOf(texts.filter((element) => !isComment(element) && !isInside(element, isComment))) < minArticle;
}

function isInside(element: DomElement, test: (around: DomElement) => boolean): boolean {
  for (let at = element.parentNode; at !== null && at.nodeName !== "BODY"; at = at.parentNode) {
    if (test(at)) return true;
  }
  return false;
}

function lengthOf(elements: readonly DomElement[]): number {
  return elements.reduce((sum, element) => sum + plainText(element).length, 0);
}

/** Removes an element, but keeps the main heading of the page if the element contains it. */
function removeButHeading(element: DomElement, document: DomDocument): void {
  const [heading, ...others] = [...document.querySelectorAll("h1")];
  if (heading !== undefined && others.length === 0 && element.contains(heading)) element.replaceWith(heading);
  else element.remove();
}

function junkOf(kind: PageKind): readonly ReadonlySet<string>[] {
  if (kind === "discussion") return [junkWords];
  return kind === "product" ? [junkWords, commentWords, reviewWords] : [junkWords, commentWords];
}

function isJunk(names: readonly string[], junk: readonly ReadonlySet<string>[]): boolean {
  return names.some((word) => junk.some((set) => set.has(word))) || junkPairs.test(names.join(" "));
}

/** Returns whether an element must not be removed because of its class: main elements, headings, quotes, notes and code. */
function isPartOfText(element: DomElement): boolean {
  if (element.getAttribute("role") === "note") return true;
  return /^(?:MAIN|ARTICLE|BLOCKQUOTE|H[1-6])$/.test(element.nodeName) || element.closest("pre, code") !== null;
}

/** Returns the sections whose ids are generated from their headings. Such ids say nothing about the layout. */
function namedSections(document: DomDocument): ReadonlySet<DomElement> {
  const sections = [...document.querySelectorAll("section[id], div[id]")].filter((section) => {
    const heading = plainText(section.querySelector(headings));
    return heading !== "" && slug(heading) === slug(section.getAttribute("id") ?? "");
  });
  return new Set(sections.length < minNamedSections ? [] : sections);
}

function slug(text: string): string {
  return text
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}]+/gu, " ")
    .trim();
}

export function hasWord(element: DomElement, wanted: ReadonlySet<string>): boolean {
  return namesOf(element).some((word) => wanted.has(word));
}

/** Returns the words in the class and, with `isWithId`, the id of an element, in lower case. */
export function namesOf(element: DomElement, isWithId = true): readonly string[] {
  const id = isWithId ? (element.getAttribute("id") ?? "") : "";
  return `${element.getAttribute("class") ?? ""} ${id}`
    .replaceAll(/([a-z])([A-Z])/g, "$1 $2")
    .toLowerCase()
    .split(/[^a-z]+/);
}

export function words(text: string): ReadonlySet<string> {
  return new Set(text.split(" "));
}
