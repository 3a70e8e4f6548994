// Domain rules of a request: determine which pages its searches and reads may use. A domain includes its subdomains. A rule may
// end with a path, as in `example.com/docs`.
import type { WebOptions } from "../api/agent/web.ts";

type Rules = Pick<WebOptions, "allowedDomains" | "blockedDomains">;

/** Returns whether the rules allow a URL. */
export function allowsUrl({ allowedDomains, blockedDomains }: Rules, url: URL): boolean {
  if (blockedDomains.some((rule) => matches(rule, url))) return false;
  return allowedDomains.length === 0 || allowedDomains.some((rule) => matches(rule, url));
}

function matches(rule: string, url: URL): boolean {
  const text = rule
    .trim()
    .replace(/^[a-z]+:\/\//i, "")
    .replace(/^\*\./, "");
  if (!URL.canParse(`http://${text}`)) return false;
  const { hostname, pathname } = new URL(`http://${text}`);
  const [domain, host] = [hostname, url.hostname].map((name) => name.replace(/\.$/, "")) as [string, string];
  if (host !== domain && !host.endsWith(`.${domain}`)) return false;
  const path = pathname.replace(/[/*]+$/, "");
  return path === "" || url.pathname === path || url.pathname.startsWith(`${path}/`);
}
