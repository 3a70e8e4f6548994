// Keys of web search: its provider. Part of the table in keys.ts.
import type { Key } from "../key.ts";
import { httpUrl, integer, oneOf, text } from "../kinds.ts";

export const searchKeys = {
  provider: {
    ...oneOf(["duckduckgo", "searxng", "brave", "tavily"]),
    default: "duckduckgo",
    flag: "--search-provider",
    help: "Search engine of web search: duckduckgo needs no key, searxng needs search_url, brave and tavily need SEARCH_API_KEY; needs enable_search or agent",
  },
  url: {
    ...httpUrl,
    default: null,
    defaultSays: "the provider's own",
    // The address may contain a password.
    secret: true,
    flag: "--search-url",
    help: "Base URL of the search provider, such as http://localhost:8888 for searxng; it may be in a private network; needs enable_search or agent",
  },
  apiKey: {
    ...text("a key", "KEY"),
    default: null,
    secret: true,
    only: "environment",
    flag: "--search-api-key",
    environment: "SEARCH_API_KEY",
    help: "Key of the search provider (brave, tavily)",
  },
  results: {
    ...integer(1, 20),
    default: 10,
    flag: "--search-results",
    help: "Maximum number of results of a search; their pages are read; needs enable_search or agent",
  },
} as const satisfies Record<string, Key>;
