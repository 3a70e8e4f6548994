// Web search in requests: the fields that the protocols share, and their translation to options of the web tools.
import { z } from "zod";
import { defaultWebOptions, type UserLocation, type WebOptions } from "../../../../actors/api/agent/web.ts";
import { expected } from "../../../issues.ts";
import { ignored } from "../fields.ts";
import { toolDescription, webSearchTypes } from "./tool-fields.ts";

const MAX_DOMAINS = 100;
const MAX_DOMAIN_LENGTH = 253;
const MAX_PLACE_LENGTH = 256;

/** Names of the web tools, as the model sees them. */
export const webToolNames = {
  search: "service_search_the_web",
  page: "service_website_content_extractor",
} as const;

/** Web tool settings of a request. */
export interface WebUse {
  /** Request field that enables web search, for error messages. */
  readonly field: "tools" | "web_search_options";
  readonly options: WebOptions;
  /** Maximum number of calls, by tool name. */
  readonly maxUses: Readonly<Record<string, number>>;
  /** Tool descriptions that replace the default ones, by tool name. */
  readonly descriptions: Readonly<Record<string, string>>;
  /** Names of the web tools that are not offered. */
  readonly withoutTools: readonly string[];
}

export const plainWebUse: WebUse = {
  field: "tools",
  options: defaultWebOptions,
  maxUses: {},
  descriptions: {},
  withoutTools: [],
};

export const contextSizeField = z
  .enum(["low", "medium", "high"])
  .nullish()
  .meta({ description: "How much text of the found pages a search returns.", default: "medium" });

/** Domain name without scheme or path. Subdomains are included. */
const domain = z
  .string()
  .max(MAX_DOMAIN_LENGTH)
  .regex(/^(?:[\p{L}\p{N}_-]+\.)*[\p{L}\p{N}_-]+$/u, { error: expected("a domain name, as example.com") });

export const domainsField = z
  .array(domain)
  .max(MAX_DOMAINS)
  .nullish()
  .meta({ description: "Domain names; their subdomains belong to them." });

const place = z.string().max(MAX_PLACE_LENGTH).nullish();
export const placeFields = {
  city: place,
  country: place.meta({ description: "Two-letter country code." }),
  region: place,
  timezone: place.meta({ description: "IANA time zone." }),
} as const;

type Place = Partial<Record<keyof typeof placeFields, string | null | undefined>>;

/** Returns a user location; null if all of its fields are absent. */
export function locationOf(place: Place | null | undefined): UserLocation | null {
  const { city = null, country = null, region = null, timezone = null } = place ?? {};
  const isKnown = [city, country, region, timezone].some((value) => value !== null);
  return isKnown ? { city, country, region, timezone } : null;
}

/** Web search fields that other servers support and this server ignores. */
export const ignoredWebFields = {
  external_web_access: ignored(z.boolean(), "searches always use the web; the server keeps no index of it"),
  return_token_budget: ignored(z.unknown(), "search_context_size limits the text of a search"),
  image_settings: ignored(z.unknown(), "searches return text"),
} as const;

/** Schema of the web search tool of the responses protocol. */
export const webSearchTool = z.strictObject({
  type: z.enum(webSearchTypes),
  search_context_size: contextSizeField,
  user_location: z
    .strictObject({ type: z.literal("approximate").nullish(), ...placeFields })
    .nullish()
    .meta({ description: "Approximate location of the user." }),
  filters: z.strictObject({ allowed_domains: domainsField, blocked_domains: domainsField }).nullish(),
  search_content_types: ignored(z.array(z.string()), "searches return text"),
  indexed_web_access: ignored(z.boolean(), "searches always use the web; the server keeps no index of it"),
  ...ignoredWebFields,
});

export type WebSearchTool = z.output<typeof webSearchTool>;

export function webUseOfTool({ search_context_size, user_location, filters }: WebSearchTool): WebUse {
  return { ...plainWebUse, options: optionsOf({ search_context_size, filters, place: user_location }) };
}

interface OptionFields {
  readonly search_context_size?: WebOptions["contextSize"] | null | undefined;
  readonly place: Place | null | undefined;
  readonly filters: WebSearchTool["filters"];
}

function optionsOf({ search_context_size, place, filters }: OptionFields): WebOptions {
  return {
    contextSize: search_context_size ?? defaultWebOptions.contextSize,
    location: locationOf(place),
    allowedDomains: filters?.allowed_domains ?? [],
    blockedDomains: filters?.blocked_domains ?? [],
  };
}

/** Field `web_search_options` of chat completions and messages, which enables web search. */
export const webSearchOptionsField = z
  .strictObject({
    search_context_size: contextSizeField,
    user_location: z
      .strictObject({
        type: z.literal("approximate"),
        approximate: z.strictObject(placeFields).nullish(),
        ...placeFields,
      })
      .nullish()
      .meta({ description: "Approximate location of the user." }),
    filters: z.strictObject({ allowed_domains: domainsField, blocked_domains: domainsField }).nullish(),
    search_description: toolDescription.nullish().meta({ description: "Replaces the description of the search tool." }),
    extract_description: toolDescription
      .nullish()
      .meta({ description: "Replaces the description of the tool that reads pages." }),
    ...ignoredWebFields,
  })
  .nullish()
  .meta({ description: "Offer web search; needs the setting enable_search." });

export type WebSearchOptions = z.output<typeof webSearchOptionsField>;

export function webUseOf(options: WebSearchOptions): WebUse {
  if (options === null || options === undefined) return plainWebUse;
  const { search_context_size, user_location: location, filters, search_description, extract_description } = options;
  return {
    ...plainWebUse,
    field: "web_search_options",
    options: optionsOf({ search_context_size, filters, place: location?.approximate ?? location }),
    descriptions: {
      ...(typeof search_description === "string" ? { [webToolNames.search]: search_description } : {}),
      ...(typeof extract_description === "string" ? { [webToolNames.page]: extract_description } : {}),
    },
  };
}
