// Posts of a discussion: reduces the author box of each post to the author's name and the time.
import { type DomDocument, type DomElement, plainText } from "../dom.ts";
import { namesOf } from "./names.ts";

const userBox = /\b(?:post ?profile|poster ?info|user ?info|user ?details|message (?:cell )?user)\b/;
/** Selectors of forum signatures, which are block elements. Inline elements with these classes are function signatures in code. */
const signatures = "div.signature, div.post_signature, .message-signature";
const names = '.username, [itemprop="name"], [rel="author"], a[href]';
const maxBoxLength = 400;

export function shortenPosts(document: DomDocument): void {
  for (const signature of document.querySelectorAll(signatures)) if (isShort(signature)) signature.remove();
  for (const box of document.querySelectorAll("body [class]")) {
    if (userBox.test(namesOf(box).join(" ")) && isShort(box)) box.replaceWith(` ${nameAndTime(box)} `);
  }
  removeReplyHeadings(document);
}

function isShort(element: DomElement): boolean {
  return plainText(element).length < maxBoxLength && element.querySelector("pre, code, h1") === null;
}

function nameAndTime(box: DomElement): string {
  const name = [...box.querySelectorAll(names)].map(plainText).find((text) => text !== "");
  const time = plainText(box.querySelector('time, [class*="time"]'));
  return name === undefined ? plainText(box) : `${name} ${time}`.trim();
}

/** Removes headings such as "Re: the topic" that follow a heading with the topic. */
function removeReplyHeadings(document: DomDocument): void {
  const topics = new Set<string>();
  for (const heading of document.querySelectorAll("h1, h2, h3, h4, h5, h6")) {
    const text = plainText(heading);
    if (/^re:/i.test(text) && topics.has(text.replace(/^re:\s*/i, ""))) heading.remove();
    else topics.add(text);
  }
}
