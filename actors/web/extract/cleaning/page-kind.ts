// Page kind: the microdata, JSON-LD and metadata of a page say whether it is a discussion or a product.
import type { DomDocument } from "../dom.ts";

/** `discussion`: comments are main text. `product`: customer reviews are not main text. */
export type PageKind = "discussion" | "product" | "other";

const discussions = new Set(["QAPage", "Question", "DiscussionForumPosting", "Conversation"]);
const products = new Set(["Product", "ProductGroup"]);

/** Returns the kind of a page. Its scripts must not have been removed yet, because they contain the JSON-LD. */
export function pageKind(document: DomDocument): PageKind {
  const items = [...document.querySelectorAll("[itemtype]")].map((item) => item.getAttribute("itemtype") ?? "");
  const microdata = items.map((type) => type.slice(type.lastIndexOf("/") + 1));
  const scripts = [...document.querySelectorAll('script[type="application/ld+json"]')];
  const jsonLd = scripts.map((script) => mainType(script.textContent ?? ""));
  const types = [...microdata, ...jsonLd];
  // The questions of an FAQPage are not a discussion: pages of all kinds have such a section.
  if (types.some((type) => discussions.has(type)) && !types.includes("FAQPage")) return "discussion";
  const property = document.querySelector('meta[property="og:type"]')?.getAttribute("content");
  return property === "product" || jsonLd.some((type) => products.has(type)) ? "product" : "other";
}

/** Returns the first type in JSON-LD, which is the type of the page. Later types belong to its parts. */
function mainType(json: string): string {
  const [, type = ""] = /"@type"\s*:\s*"(\w+)"/.exec(json) ?? [];
  return type;
}
