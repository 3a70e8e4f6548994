// Creates the configured search provider.

import { publicGuard } from "../../../runtime/web/connection.ts";
import { GuardedFetcher } from "../../../runtime/web/guarded-fetch.ts";
import type { WebPlaceInit } from "../../messages.ts";
import type { Extractor } from "../readers/extractor.ts";
import { Brave, braveUrl } from "./brave.ts";
import { DuckDuckGo, duckDuckGoUrl } from "./duckduckgo.ts";
import type { SearchProvider } from "./provider.ts";
import { SearXng } from "./searxng.ts";
import { Tavily, tavilyUrl } from "./tavily.ts";

/** Creates a provider. A configured URL is trusted because it comes from the operator, so it may be in a private network. */
export function openProvider({ name, url, apiKey }: WebPlaceInit["provider"], extractor: Extractor): SearchProvider {
  const fetcher = new GuardedFetcher(url === null ? publicGuard : { ...publicGuard, isAllowed: () => true });
  switch (name) {
    case "duckduckgo":
      return new DuckDuckGo(fetcher, url ?? duckDuckGoUrl, extractor);
    case "searxng":
      return new SearXng(fetcher, url ?? "");
    case "brave":
      return new Brave(fetcher, url ?? braveUrl, apiKey ?? "");
    case "tavily":
      return new Tavily(fetcher, url ?? tavilyUrl, apiKey ?? "");
  }
}
