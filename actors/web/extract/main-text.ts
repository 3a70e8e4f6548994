// Main text of a page: finds the element that contains it.
import { Readability } from "@mozilla/readability";
import { type DomDocument, type DomElement, parseDocument, plainText } from "./dom.ts";

/** Minimum length in characters of the text of an element that counts as the main text; on short pages half of all text. */
const minLength = 140;
/** Readability's result is used if it has at least this fraction of the words. It finds one article, but a page may have many posts. */
const minShare = 0.5;
/** Maximum number of elements of a page for Readability, which takes several times as long as the rest of the extraction. */
const maxElements = 15_000;
/** A list or block with at least this fraction of its text in links is navigation. */
const linkShare = 0.8;
const minLinks = 3;

/** Returns the element that contains the main text. The document is cleaned already. */
export function mainElement(document: DomDocument): DomElement {
  const enough = Math.min(minLength, plainText(document.body).length / 2);
  for (const selector of ["main, [role=main]", "article"]) {
    const found = [...document.querySelectorAll(selector)].filter((element) => plainText(element).length >= enough);
    const [only] = found;
    if (only !== undefined && found.every((other) => only.contains(other))) return only;
  }
  removeLinkLists(document);
  return readable(document) ?? document.body;
}

/** Returns what Readability finds; null: it finds too little, or the page is too large for it. */
function readable(document: DomDocument): DomElement | null {
  if ([...document.querySelectorAll("*")].length > maxElements) return null;
  const options = { keepClasses: true, charThreshold: minLength, disableJSONLD: true };
  const article = new Readability(document.cloneNode(true) as never, options).parse();
  if (article?.content == null) return null;
  const { body } = parseDocument(article.content);
  return plainText(body).length >= minShare * plainText(document.body).length ? body : null;
}

function removeLinkLists(document: DomDocument): void {
  for (const block of document.querySelectorAll("ul, ol, td, div, p")) {
    const links = [...block.querySelectorAll("a[href]")];
    if (links.length < minLinks || block.querySelector("pre, h1") !== null) continue;
    const linked = links.reduce((sum, link) => sum + plainText(link).length, 0);
    if (linked >= linkShare * plainText(block).length) block.remove();
  }
}
