// Boilerplate by structure: removes forms, tables of contents, and sections whose heading indicates that they are not
// main text.
import { type DomDocument, type DomElement, mainShare, plainText } from "../dom.ts";

/** Maximum length in characters of a box around a form for email addresses, such as that of a newsletter. */
const maxBoxLength = 400;
const minLinks = 3;
/** Links with the same text are controls if they lead to at least this number of places. */
const minControls = 3;
const maxControlLength = 32;
/** Maximum number of characters between the links of a block, in total. */
const maxGaps = 8;
/** The copyright line begins at most this number of characters before the end of the page. */
const maxLegalLength = 400;
/** A list with at least this fraction of its text in links consists of links. */
export const linkShare = 0.8;

/** Headings of sections that lead to other pages or contain texts of visitors. */
const junkHeading = new RegExp(
  `^(?:${[
    String.raw`(?:\d+ )?(?:comments?|responses|replies|reviews?) ?\(\d+\)`,
    String.raw`\d+ (?:comments?|responses|replies|thoughts)(?: (?:on|to) .*)?`,
    "(?:related|recommended|suggested|similar|popular|trending|latest|recent) (?:articles|posts|stories|content|coverage|news|jobs|products|questions|threads|topics|reading|searches)",
    "you (?:may|might) also (?:like|enjoy|be interested in).*",
    "(?:customers|people|others) (?:who .*)?also (?:bought|viewed|read|liked).*",
    "recently viewed.*|most (?:read|popular|viewed)|leave a (?:reply|comment)|share this(?: .*)?:?|like this:|about the author|your answer|who is online|on this page|table of contents|(?:is|was) this (?:page|article) (?:useful|helpful)",
  ].join("|")})[?:]?$`,
  "i",
);

export function removeByStructure(document: DomDocument): void {
  const limit = mainShare * plainText(document.body).length;
  for (const form of document.querySelectorAll("form")) if (form.isConnected) removeBelow(limit, emailBox(form));
  for (const list of document.querySelectorAll("ul, ol"))
    if (isContents(list)) removeBelow(limit, ...listAndHeading(list));
  for (const caption of document.querySelectorAll("caption")) {
    const table = caption.closest("table");
    if (table !== null && junkHeading.test(plainText(caption))) removeBelow(limit, table);
  }
  const headings = [...document.querySelectorAll("h2, h3, h4, h5, h6")];
  const sections = headings.filter((heading) => junkHeading.test(plainText(heading)));
  for (const section of sections.map((heading) => sectionOf(heading, limit))) removeBelow(limit, ...section);
}

/** Removes elements unless they are most of the page: some servers write a form around all of it. */
function removeBelow(limit: number, ...elements: readonly DomElement[]): void {
  const length = elements.reduce((sum, element) => sum + plainText(element).length, 0);
  if (length < limit) for (const element of elements) element.remove();
}

/** Returns the box with the text around a form for an email address; for another form, the form itself. */
function emailBox(form: DomElement): DomElement {
  let box = form;
  if (form.querySelector('input[type="email"]') === null) return box;
  for (let around = box.parentNode; around !== null && isBox(around); around = around.parentNode) box = around;
  return box;
}

function isBox(element: DomElement): boolean {
  if (["MAIN", "ARTICLE", "BODY"].includes(element.nodeName)) return false;
  return plainText(element).length < maxBoxLength && levels(element).length <= 1;
}

/** Returns a list and, if nothing else follows it, the heading before it. */
export function listAndHeading(list: DomElement): readonly DomElement[] {
  const [heading, next] = [list.previousElementSibling, list.nextElementSibling];
  if (heading === null || !/^H[2-6]$/.test(heading.nodeName)) return [list];
  return next === null || levels(next).some((level) => level <= heading.nodeName) ? [heading, list] : [list];
}

/** Whether a list consists of links to places of the same page. */
function isContents(list: DomElement): boolean {
  const links = [...list.querySelectorAll("a[href]")];
  if (links.length < minLinks || !links.every((link) => link.getAttribute("href")?.startsWith("#"))) return false;
  return linkedLength(links) >= linkShare * plainText(list).length;
}

/** Returns the length of the text of links. */
export function linkedLength(links: readonly DomElement[]): number {
  return links.reduce((sum, link) => sum + plainText(link).length, 0);
}

/**
 * Returns the element that begins with a heading. If there is none, returns the heading and the elements after it, up
 * to the next heading of its level or a higher one.
 */
function sectionOf(heading: DomElement, limit: number): readonly DomElement[] {
  let section = heading;
  for (let around = heading.parentNode; around !== null && isFirst(section); around = around.parentNode) {
    if (["MAIN", "ARTICLE", "BODY"].includes(around.nodeName) || plainText(around).length >= limit) break;
    section = around;
  }
  return section === heading ? [heading, ...follower(heading)] : [section];
}

/** Whether the element around an element has no text before it. */
function isFirst(element: DomElement): boolean {
  let before = element.previousSibling;
  while (before !== null && plainText(before) === "") before = before.previousSibling;
  return before === null;
}

function follower(heading: DomElement): readonly DomElement[] {
  const after: DomElement[] = [];
  let next = heading.nextElementSibling;
  while (next !== null && !levels(next).some((level) => level <= heading.nodeName)) {
    after.push(next);
    next = next.nextElementSibling;
  }
  return after;
}

/** Returns the names of the headings that an element is or contains. */
function levels(element: DomElement): readonly string[] {
  const own = /^H[1-6]$/.test(element.nodeName) ? [element.nodeName] : [];
  return [...own, ...[...element.querySelectorAll("h1, h2, h3, h4, h5, h6")].map(({ nodeName }) => nodeName)];
}

/** Removes links with one text that lead to many places, such as "Download" below each item of a list. */
export function removeControls(document: DomDocument): void {
  const targets = new Map<string, Set<string>>();
  const blocks = new Set([...document.querySelectorAll("a[href]")].map(({ parentNode }) => parentNode));
  const links = [...blocks].flatMap((block) => (block !== null && isRowOfLinks(block) ? controlsIn(block) : []));
  for (const link of links) {
    const places = targets.get(plainText(link)) ?? new Set();
    targets.set(plainText(link), places.add(link.getAttribute("href") ?? ""));
  }
  for (const link of links) if ((targets.get(plainText(link))?.size ?? 0) >= minControls) link.remove();
}

/** Whether a block has nothing but links, outside of tables, paragraphs and headings. */
function isRowOfLinks(block: DomElement): boolean {
  if (!["DIV", "LI", "SPAN"].includes(block.nodeName) || block.closest("td, th, p, pre") !== null) return false;
  return linkedLength(controlsIn(block)) >= plainText(block).length - maxGaps;
}

function controlsIn(block: DomElement): readonly DomElement[] {
  return [...block.children].filter(({ nodeName, textContent }) => {
    const length = textContent?.length ?? 0;
    return nodeName === "A" && length > 0 && length <= maxControlLength;
  });
}

/** Removes the copyright line at the end of a page. */
export function removeLegalLine(document: DomDocument): void {
  const text = plainText(document.body);
  for (const element of document.querySelectorAll("p, div, li, td, small, span, address")) {
    if (element.querySelector("p, div, table, ul") !== null) continue;
    const line = plainText(element);
    const isAtEnd = /^(?:©|copyright\b|\(c\))/i.test(line) && text.length - text.lastIndexOf(line) < maxLegalLength;
    if (isAtEnd && line.length < mainShare * text.length) element.remove();
  }
}
