// Result page of DuckDuckGo's HTML interface: parses its results, and detects a CAPTCHA page.
import type { SearchResult } from "../search-result.ts";
import { parseDocument, plainText } from "./dom.ts";

/** Parsed results, or why there are none. `blocked`: it is a CAPTCHA page. `unknown`: it is not a result page. */
export type ResultPage = readonly SearchResult[] | "blocked" | "unknown";

export function duckDuckGoResults(html: string): ResultPage {
  const document = parseDocument(html);
  if (document.querySelector(".anomaly-modal__title, .anomaly-modal__modal, #challenge-form") !== null)
    return "blocked";
  const results = [...document.querySelectorAll(".result:not(.result--ad)")].flatMap((result) => {
    const link = result.querySelector("a.result__a");
    const url = targetOf(link?.getAttribute("href") ?? "");
    const description = plainText(result.querySelector(".result__snippet"));
    return url === null ? [] : [{ title: plainText(link), url, description }];
  });
  return results.length > 0 || document.querySelector(".no-results, .result--no-result") !== null ? results : "unknown";
}

/** Returns the target URL of a link, without DuckDuckGo's redirect; null = no target, or an advertisement. */
function targetOf(href: string): string | null {
  const base = "https://duckduckgo.com/";
  if (href === "" || !URL.canParse(href, base)) return null;
  const url = new URL(href, base);
  if (!/^(?:.+\.)?duckduckgo\.com$/.test(url.hostname)) return url.href;
  const target = url.pathname === "/l/" ? url.searchParams.get("uddg") : null;
  return target !== null && URL.canParse(target) ? target : null;
}
