// Cleaning of a page: removes elements that are not its main text, such as scripts, navigation, banners, comments and footers.
import { type DomDocument, type DomElement, plainText } from "./dom.ts";

/** Elements without text for readers. */
const invisible =
  "script, style, template, iframe, object, embed, canvas, svg, link, meta, button, input, select, textarea, dialog, audio, video, [hidden], [aria-hidden=true], .lineno, .linenos, .line-numbers-rows, .gutter, .sr-only, .visually-hidden, .mw-editsection, sup.reference, amp-ad, amp-analytics, amp-sidebar, amp-consent";
const boilerplate =
  "nav, [role=navigation], [role=banner], [role=contentinfo], [role=search], [role=complementary], [role=dialog], [role=alertdialog], [role=menu], [role=menubar]";

/** Words in a class or id that mark an element as boilerplate. */
const junkWords = new Set(
  "ad ads advert advertisement adsense banner breadcrumb breadcrumbs comment comments commentlist consent cookie cookies disqus dropdown feedback footer gdpr masthead menu modal nav navbar navigation navbox newsletter pager pagination popup promo recommended related share sharing sidebar signup skip skiplink social sponsor sponsored subscribe toc toolbar widget".split(
    " ",
  ),
);
const noteWords = new Set(["note", "warning", "tip", "callout", "admonition", "caution", "important"]);
/** An element with at least this fraction of the page's text is not boilerplate, whatever its class says. */
const mainShare = 0.5;
/** A page with less text than this without its noscript elements needs them. */
const minTextLength = 200;

/** Removes the boilerplate of a page in place. */
export function clean(document: DomDocument): void {
  keepMathSource(document);
  keepCheckboxes(document);
  removeAll(document, invisible);
  for (const styled of document.querySelectorAll("[style]")) if (isHidden(styled)) styled.remove();
  cleanNoscript(document);
  removeAll(document, boilerplate);
  for (const footer of document.querySelectorAll("footer")) if (footer.closest("blockquote") === null) footer.remove();
  for (const header of document.querySelectorAll("header")) cleanHeader(header);
  for (const aside of document.querySelectorAll("aside")) if (!hasWord(aside, noteWords)) aside.remove();
  removeJunk(document);
}

function removeAll(document: DomDocument, selector: string): void {
  for (const element of document.querySelectorAll(selector)) element.remove();
}

function isHidden(element: DomElement): boolean {
  return /display\s*:\s*none|visibility\s*:\s*hidden/i.test(element.getAttribute("style") ?? "");
}

/** Replaces the TeX source of formulas in script elements by text, because scripts are removed. */
function keepMathSource(document: DomDocument): void {
  for (const script of document.querySelectorAll('script[type^="math/tex"]')) {
    script.replaceWith(`$${(script.textContent ?? "").trim()}$`);
  }
}

function keepCheckboxes(document: DomDocument): void {
  for (const box of document.querySelectorAll("li input[type=checkbox]")) {
    box.replaceWith(box.getAttribute("checked") === null ? "[ ] " : "[x] ");
  }
}

/** Removes noscript elements, which repeat images and tracking, unless the page has no other text. */
function cleanNoscript(document: DomDocument): void {
  const alternatives = [...document.querySelectorAll("noscript")];
  const length = alternatives.reduce((sum, element) => sum + plainText(element).length, 0);
  if (plainText(document.body).length - length < minTextLength) return;
  for (const element of alternatives) element.remove();
}

/** Removes the header of a site. The header of an article is kept, and so is the main heading of the page. */
function cleanHeader(header: DomElement): void {
  if (header.closest("article, main, [role=main], section") !== null) return;
  const heading = header.querySelector("h1");
  if (heading === null) header.remove();
  else header.replaceWith(heading);
}

function removeJunk(document: DomDocument): void {
  const total = plainText(document.body).length;
  for (const element of document.querySelectorAll("body [class], body [id]")) {
    if (!hasWord(element, junkWords) || isPartOfText(element)) continue;
    if (plainText(element).length < mainShare * total) element.remove();
  }
}

/** Main elements, code and table cells are never removed for their class. */
function isPartOfText(element: DomElement): boolean {
  return element.nodeName === "MAIN" || element.nodeName === "ARTICLE" || element.closest("pre, code") !== null;
}

function hasWord(element: DomElement, words: ReadonlySet<string>): boolean {
  const names = `${element.getAttribute("class") ?? ""} ${element.getAttribute("id") ?? ""}`;
  return names
    .replaceAll(/([a-z])([A-Z])/g, "$1 $2")
    .toLowerCase()
    .split(/[^a-z]+/)
    .some((word) => words.has(word));
}
