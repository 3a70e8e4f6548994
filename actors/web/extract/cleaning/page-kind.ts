// Kind of a page: whether its microdata, JSON-LD or metadata say that it is a discussion or a product.
import type { DomDocument } from "../dom.ts";

/** `discussion`: comments are main text. `product`: reviews by customers are not. */
export type PageKind = "discussion" | "product" | "other";

const kinds: readonly (readonly [PageKind, RegExp])[] = [
  ["discussion", /^(?:QAPage|Question|DiscussionForumPosting|Conversation)$/],
  ["product", /^(?:Product|ProductGroup)$/],
];

/** Returns the kind of a page that has its scripts still. */
export function pageKind(document: DomDocument): PageKind {
  const types = [...document.querySelectorAll('[itemtype], script[type="application/ld+json"]')].map((element) => {
    const type = element.getAttribute("itemtype");
    return type === null ? mainType(element.textContent ?? "") : type.slice(type.lastIndexOf("/") + 1);
  });
  const property = document.querySelector('meta[property="og:type"]')?.getAttribute("content");
  if (property === "product") return "product";
  return kinds.find(([, pattern]) => types.some((type) => pattern.test(type)))?.[0] ?? "other";
}

/** Returns the first type in JSON-LD, which is that of the page; those in it are of its parts. */
function mainType(json: string): string {
  const [, type = ""] = /"@type"\s*:\s*"(\w+)"/.exec(json) ?? [];
  return type;
}
