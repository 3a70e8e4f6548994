// Page cleaning: removes elements that are not part of the main text, such as scripts, navigation, banners, comments and footers.

import { type DomDocument, type DomElement, type DomNode, isElement, plainText, textNode } from "../dom.ts";
import { removeLineNumbers } from "./line-numbers.ts";
import { hasWord, removeByName, words } from "./names.ts";
import { pageKind } from "./page-kind.ts";
import { shortenPosts } from "./posts.ts";
import { removeByStructure, removeControls, removeLegalLine } from "./structure.ts";

const programs = "script, style, template";
/** Elements that contain no text for readers. */
const invisible =
  "iframe, object, embed, canvas, svg, link, meta, button, input, select, textarea, dialog, audio, video, [aria-hidden=true], .sr-only, [class*=visually-hidden], [class*=screen-reader], .element-invisible, .mw-editsection, sup.reference, amp-ad, amp-analytics, amp-sidebar, amp-consent";
/** Buttons in headings, which unfold the text below. */
const titleButtons = "h1 button, h2 button, h3 button, h4 button, h5 button, h6 button, dt button, summary button";
const boilerplate =
  "nav, [role=navigation], [role=banner], [role=contentinfo], [role=search], [role=complementary], [role=dialog], [role=alertdialog], [role=menu], [role=menubar], [role=tablist]";

const noteWords = words("note warning tip callout admonition caution important");
/** Minimum number of characters outside noscript elements. If a page has fewer, its noscript elements are kept. */
const minTextLength = 200;

/** Removes the boilerplate of a page in place. */
export function clean(document: DomDocument): void {
  const kind = pageKind(document);
  keepMathSource(document);
  keepCheckboxes(document);
  removeAll(document, programs);
  removeByStructure(document);
  for (const button of document.querySelectorAll(titleButtons)) button.replaceWith(...button.childNodes);
  removeAll(document, invisible);
  removeLineNumbers(document);
  for (const element of document.querySelectorAll("[hidden], [style]")) if (isHidden(element)) element.remove();
  cleanNoscript(document);
  removeAll(document, boilerplate);
  for (const footer of document.querySelectorAll("footer")) if (footer.closest("blockquote") === null) footer.remove();
  for (const header of document.querySelectorAll("header")) cleanHeader(header);
  for (const aside of document.querySelectorAll("aside")) if (!hasWord(aside, noteWords)) aside.remove();
  shortenPosts(document);
  removeByName(document, kind);
  separateWords(document);
  removeControls(document);
  removeLegalLine(document);
}

function removeAll(document: DomDocument, selector: string): void {
  for (const element of document.querySelectorAll(selector)) element.remove();
}

/** Returns whether an element is hidden. Tab panels and folded sections count as visible, because readers can open them. */
function isHidden(element: DomElement): boolean {
  if (element.getAttribute("role") === "tabpanel" || element.getAttribute("hidden") === "until-found") return false;
  if (element.getAttribute("hidden") !== null) return true;
  return /display\s*:\s*none|visibility\s*:\s*hidden/i.test(element.getAttribute("style") ?? "");
}

/** Replaces script elements that contain the TeX source of formulas by text, because scripts are removed later. */
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

/** Removes noscript elements, which repeat images and tracking code, unless the page has almost no other text. */
function cleanNoscript(document: DomDocument): void {
  const alternatives = [...document.querySelectorAll("noscript")];
  const length = alternatives.reduce((sum, element) => sum + plainText(element).length, 0);
  if (plainText(document.body).length - length < minTextLength) return;
  for (const element of alternatives) element.remove();
}

/** Removes the header of the site. The header of an article and the main heading of the page are kept. */
function cleanHeader(header: DomElement): void {
  if (header.closest("article, main, [role=main], section") !== null) return;
  const heading = header.querySelector("h1");
  if (heading === null) header.remove();
  else header.replaceWith(heading);
}

/**
 * Inserts a space between adjacent elements of a block that has no text of its own. On the page, the style sheet separates these
 * elements; without a space, their words would be joined.
 */
function separateWords(document: DomDocument): void {
  for (const block of document.querySelectorAll("div, li, td, section, header")) {
    const nodes = [...block.childNodes];
    if (nodes.some((node) => node.nodeType === textNode && plainText(node) !== "")) continue;
    for (const [at, node] of nodes.entries()) if (isElement(node) && isGlued(node, nodes[at + 1])) node.after(" ");
  }
}

function isGlued(node: DomElement, next: DomNode | undefined): boolean {
  if (next === undefined || !isElement(next) || node.closest("pre, code") !== null) return false;
  return /[\p{L}\p{N}]$/u.test(plainText(node)) && /^[\p{L}\p{N}]/u.test(plainText(next));
}
