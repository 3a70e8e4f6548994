// Locale of a user: creates parameters for search providers from the location and the domains of a request.
import type { UserLocation, WebOptions } from "../../api/agent/web.ts";

/** DuckDuckGo region codes that are not `<country>-<main language>`, by country. */
const otherRegions: Readonly<Record<string, string>> = {
  GB: "uk-en",
  HK: "hk-tzh",
  IN: "in-en",
  JP: "jp-jp",
  KR: "kr-kr",
  NO: "no-no",
  TW: "tw-tzh",
};

/** Maximum number of domains in a query. The results are filtered by all domains. */
const maxDomains = 8;

/** Returns the DuckDuckGo region code of a location, such as `us-en`; null = unknown. */
export function regionOf(location: UserLocation | null): string | null {
  const country = countryOf(location);
  return country === null ? null : (otherRegions[country] ?? `${country.toLowerCase()}-${languageOf(country)}`);
}

/** Returns the locale of a location, such as `en-US`; null = unknown. */
export function localeOf(location: UserLocation | null): string | null {
  const country = countryOf(location);
  return country === null ? null : `${languageOf(country)}-${country}`;
}

/** Returns the English name of the location's country in lower case; null = unknown. */
export function countryName(location: UserLocation | null): string | null {
  const country = countryOf(location);
  return country === null ? null : (regionNames.of(country)?.toLowerCase() ?? null);
}

/** Returns the country code of the location in upper case; null = unknown. */
export function countryOf(location: UserLocation | null): string | null {
  const country = location?.country?.toUpperCase() ?? "";
  return /^[A-Z]{2}$/.test(country) && regionNames.of(country) !== undefined ? country : null;
}

/** Returns the main language of a country. */
function languageOf(country: string): string {
  return new Intl.Locale(`und-${country}`).maximize().language;
}

const regionNames = new Intl.DisplayNames("en", { type: "region", fallback: "none" });

/** Returns a query that is restricted to the allowed domains and excludes the blocked ones. */
export function queryWithDomains(text: string, { allowedDomains, blockedDomains }: WebOptions): string {
  const allowed = allowedDomains.slice(0, maxDomains).map((domain) => `site:${domain}`);
  const blocked = blockedDomains.slice(0, maxDomains).map((domain) => `-site:${domain}`);
  // If there are more allowed domains than fit into the query, the query is not restricted to any of them.
  const sites = allowedDomains.length > maxDomains ? [] : allowed.length > 0 ? [allowed.join(" OR ")] : [];
  return [text, ...sites, ...blocked].join(" ");
}
