// Locale of a user: parameters of search providers made from the location and the domains of a request.
import type { UserLocation, WebOptions } from "../../api/agent/web.ts";

/** Main language of countries, as search providers combine the two. Other countries are searched without a region. */
const languages: Readonly<Record<string, string>> = {
  at: "de",
  au: "en",
  be: "nl",
  br: "pt",
  ca: "en",
  ch: "de",
  cl: "es",
  cn: "zh",
  cz: "cs",
  de: "de",
  dk: "da",
  es: "es",
  fi: "fi",
  fr: "fr",
  gb: "en",
  gr: "el",
  hu: "hu",
  ie: "en",
  il: "he",
  in: "en",
  it: "it",
  jp: "jp",
  kr: "kr",
  mx: "es",
  nl: "nl",
  no: "no",
  nz: "en",
  pl: "pl",
  pt: "pt",
  ro: "ro",
  ru: "ru",
  se: "sv",
  tr: "tr",
  ua: "uk",
  us: "en",
  za: "en",
};

/** Maximum number of domains that are written into a query. All domains are checked in the results. */
const maxDomains = 8;

/** Returns the region of a location as DuckDuckGo writes it, such as `us-en`; null: unknown. */
export function regionOf(location: UserLocation | null): string | null {
  const country = location?.country?.toLowerCase() ?? "";
  const language = languages[country];
  return language === undefined ? null : `${country === "gb" ? "uk" : country}-${language}`;
}

/** Returns the locale of a location, such as `en-US`; null: unknown. */
export function localeOf(location: UserLocation | null): string | null {
  const country = location?.country?.toLowerCase() ?? "";
  const language = { jp: "ja", kr: "ko" }[country] ?? languages[country];
  return language === undefined ? null : `${language}-${country.toUpperCase()}`;
}

/** Returns the English name of the location's country in lower case; null: unknown. */
export function countryName(location: UserLocation | null): string | null {
  const country = location?.country ?? "";
  if (!/^[a-z]{2}$/i.test(country)) return null;
  return (
    new Intl.DisplayNames("en", { type: "region", fallback: "none" }).of(country.toUpperCase())?.toLowerCase() ?? null
  );
}

/** Returns a query that asks only for the allowed domains and not for the blocked ones. */
export function queryWithDomains(text: string, { allowedDomains, blockedDomains }: WebOptions): string {
  const allowed = allowedDomains.slice(0, maxDomains).map((domain) => `site:${domain}`);
  const blocked = blockedDomains.slice(0, maxDomains).map((domain) => `-site:${domain}`);
  // With more allowed domains than the query can name, the query names none.
  const sites = allowedDomains.length > maxDomains ? [] : allowed.length > 0 ? [allowed.join(" OR ")] : [];
  return [text, ...sites, ...blocked].join(" ");
}
