// DOM of a page: parses HTML with linkedom. The types describe the part of the DOM that the extraction uses.
import { parseHTML } from "linkedom";

export interface DomNode {
  readonly nodeType: number;
  readonly nodeName: string;
  readonly childNodes: Iterable<DomNode>;
  readonly parentNode: DomElement | null;
  readonly previousSibling: DomNode | null;
  textContent: string | null;
}

export interface DomElement extends DomNode {
  readonly className: string;
  readonly children: Iterable<DomElement>;
  readonly parentNode: DomElement | null;
  readonly previousElementSibling: DomElement | null;
  readonly nextElementSibling: DomElement | null;
  readonly isConnected: boolean;
  readonly innerHTML: string;
  getAttribute(name: string): string | null;
  getAttributeNames(): readonly string[];
  setAttribute(name: string, value: string): void;
  querySelector(selector: string): DomElement | null;
  querySelectorAll(selector: string): Iterable<DomElement>;
  closest(selector: string): DomElement | null;
  contains(other: DomNode): boolean;
  remove(): void;
  after(...nodes: readonly (DomNode | string)[]): void;
  replaceWith(...nodes: readonly (DomNode | string)[]): void;
}

export interface DomDocument extends DomElement {
  readonly title: string;
  readonly body: DomElement;
  cloneNode(isDeep: boolean): DomDocument;
}

/** An element with at least this fraction of the page's text is never boilerplate. */
export const mainShare = 0.5;

export const textNode = 3;
export const elementNode = 1;

/** Parses HTML. A fragment without `<html>` is parsed as a document too. */
export function parseDocument(html: string): DomDocument {
  const isWhole = /<html[\s>]/i.test(html.slice(0, 4096));
  const { document } = parseHTML(isWhole ? html : `<!doctype html><html><body>${html}</body></html>`);
  const parsed = document as unknown as DomDocument;
  for (const element of parsed.querySelectorAll("*")) lowerNames(element);
  return parsed;
}

/** Adds lower-case copies of attributes, because linkedom keeps the case of attribute names. */
function lowerNames(element: DomElement): void {
  for (const name of element.getAttributeNames()) {
    const lower = name.toLowerCase();
    if (lower !== name) element.setAttribute(lower, element.getAttribute(name) ?? "");
  }
}

export function isElement(node: DomNode): node is DomElement {
  return node.nodeType === elementNode;
}

/** Returns the text with white space collapsed. */
export function plainText(node: DomNode | null): string {
  return (node?.textContent ?? "").replaceAll(/\s+/g, " ").trim();
}
