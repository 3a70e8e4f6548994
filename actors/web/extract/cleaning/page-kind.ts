// Page kind: determines from the microdata, JSON-LD and metadata of a page whether it is a discussion or a product page.
import type { DomDocument } from "../dom.ts";

/** `discussion`: comments are part of the main text. `product`: customer reviews are not part of the main text. */
export type PageKind = "discussion" | "product" | "other";

const discussions = new Set(["QAPage", "Question", "DiscussionForumPosting", "Conversation"]);
const products = new Set(["Product", "ProductGroup"]);

/** Returns the kind of a page. Must be called before scripts are removed, because they contain the JSON-LD. */
export function pageKind(document: DomDocument): PageKind {
  const items = [...document.querySelectorAll("[itemtype]")].map((item) => item.getAttribute("itemtype") ?? "");
  const microdata = items.map((type) => type.slice(type.lastIndexOf("/") + 1));
  const scripts = [...document.querySelectorAll('script[type="application/ld+json"]')];
  const jsonLd = scripts.map((script) => mainType(script.textContent ?? ""));
  const types = [...microdata, ...jsonLd];
  // Questions in an FAQPage are not a discussion, because pages of all kinds have such a section.
  if (types.some((type) => discussions.has(type)) && !types.includes("FAQPage")) return "discussion";
  const property = document.querySelector('meta[property="og:type"]')?.getAttribute("content");
  return property === "product" || jsonLd.some((type) => products.has(type)) ? "product" : "other";
}

/** Returns the first type in the JSON-LD, which is the type of the page. Later types belong to parts of the page. */
function mainType(json: string): string {
  const [, type = ""] = /"@type"\s*:\s*"(\w+)"/.exec(json) ?? [];
  return type;
}
