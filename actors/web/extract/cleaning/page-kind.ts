// Kind of a page: whether its microdata, JSON-LD or metadata say that it is a discussion or a product.
import type { DomDocument } from "../dom.ts";

/** `discussion`: comments are main text. `product`: reviews by customers are not. */
export type PageKind = "discussion" | "product" | "other";

const discussions = new Set(["QAPage", "Question", "DiscussionForumPosting", "Conversation"]);
const products = new Set(["Product", "ProductGroup"]);

/** Returns the kind of a page that has its scripts still. */
export function pageKind(document: DomDocument): PageKind {
  const items = [...document.querySelectorAll("[itemtype]")].map((item) => item.getAttribute("itemtype") ?? "");
  const microdata = items.map((type) => type.slice(type.lastIndexOf("/") + 1));
  const scripts = [...document.querySelectorAll('script[type="application/ld+json"]')];
  const jsonLd = scripts.map((script) => mainType(script.textContent ?? ""));
  const types = [...microdata, ...jsonLd];
  // Pages of all kinds have a section of frequently asked questions.
  if (types.some((type) => discussions.has(type)) && !types.includes("FAQPage")) return "discussion";
  const property = document.querySelector('meta[property="og:type"]')?.getAttribute("content");
  return property === "product" || jsonLd.some((type) => products.has(type)) ? "product" : "other";
}

/** Returns the first type in JSON-LD, which is that of the page. The types in it are those of its parts. */
function mainType(json: string): string {
  const [, type = ""] = /"@type"\s*:\s*"(\w+)"/.exec(json) ?? [];
  return type;
}
