// Boilerplate by structure: removes forms, tables of contents, and sections whose heading indicates that they are not
// main text.
import { type DomDocument, type DomElement, mainShare, plainText } from "../dom.ts";

/** Maximum length in characters of a box around an email form, such as a newsletter sign-up. */
const maxBoxLength = 400;
const minLinks = 3;
/** Minimum number of different targets for links with the same text to count as controls, such as "Download" links. */
const minControls = 3;
const maxControlLength = 32;
/** Maximum total number of characters between the links of a block that counts as a row of links. */
const maxGaps = 8;
/** Maximum number of characters between the beginning of the copyright line and the end of the page. */
const maxLegalLength = 400;
/** Minimum fraction of a list's text that is in links, for the list to count as a list of links. */
export const linkShare = 0.8;

/** Headings of sections that lead to other pages or contain texts written by visitors. */
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

/** Removes elements, unless they are most of the page, because some servers wrap the whole page in a form. */
function removeBelow(limit: number, ...elements: readonly DomElement[]): void {
  const length = elements.reduce((sum, element) => sum + plainText(element).length, 0);
  if (length < limit) for (const element of elements) element.remove();
}

/** Returns the box around an email form, including its text; for any other form, the form itself. */
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

/** Returns a list together with the heading before it; only the list if something else follows the list under that heading. */
export function listAndHeading(list: DomElement): readonly DomElement[] {
  const [heading, next] = [list.previousElementSibling, list.nextElementSibling];
  if (heading === null || !/^H[2-6]$/.test(heading.nodeName)) return [list];
  return next === null || levels(next).some((level) => level <= heading.nodeName) ? [heading, list] : [list];
}

/** Returns whether a list consists of links to anchors on the same page (table of contents). */
function isContents(list: DomElement): boolean {
  const links = [...list.querySelectorAll("a[href]")];
  if (links.length < minLinks || !links.every((link) => link.getAttribute("href")?.startsWith("#"))) return false;
  return linkedLength(links) >= linkShare * plainText(list).length;
}

/** Returns the total length of the links' texts. */
export function linkedLength(links: readonly DomElement[]): number {
  return links.reduce((sum, link) => sum + plainText(link).length, 0);
}

/**
 * Returns the element that begins with a heading. If there is none, returns the heading and the elements after it, up to the next
 * heading of the same or a higher level.
 */
function sectionOf(heading: DomElement, limit: number): readonly DomElement[] {
  let section = heading;
  for (let around = heading.parentNode; around !== null && isFirst(section); around = around.parentNode) {
    if (["MAIN", "ARTICLE", "BODY"].includes(around.nodeName) || plainText(around).length >= limit) break;
    section = around;
  }
  return section === heading ? [heading, ...follower(heading)] : [section];
}

/** Returns whether an element is the first content of its parent, without text before it. */
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

/** Returns the tag names of the headings that an element is or contains. */
function levels(element: DomElement): readonly string[] {
  const own = /^H[1-6]$/.test(element.nodeName) ? [element.nodeName] : [];
  return [...own, ...[...element.querySelectorAll("h1, h2, h3, h4, h5, h6")].map(({ nodeName }) => nodeName)];
}

/** Removes links with the same text that lead to many targets, such as "Download" below each item of a list. */
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

/** Returns whether a block contains only links, and is not in a table, paragraph or code block. */
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
