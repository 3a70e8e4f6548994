// Robots rules: fetches the robots.txt of a host before pages of the host are read (RFC 9309), and caches it for an hour.
import { LruMap } from "../../runtime/collections.ts";
import { toErrorRecord } from "../../runtime/errors.ts";
import type { Fetched, GuardedFetcher } from "../../runtime/web/guarded-fetch.ts";
import { refused } from "../../runtime/web/limits.ts";
import type { Extractor, TaskOwner } from "./readers/extractor.ts";

const lifetimeMs = 3_600_000;
/** Time in ms for which a failed fetch is cached. Short, because the host may respond again soon. */
const failureMs = 60_000;
const maxHosts = 128;
const limits = {
  headersMs: 4000,
  totalMs: 5000,
  redirects: 5,
  sentBytes: 524_288,
  bodyBytes: 524_288,
  minBytesPerSecond: 1024,
} as const;

/**
 * Rules of a host. `text`: content of the robots.txt; "" = no rules. `refusal`: why no page of the host may be read; null = the
 * rules apply.
 */
interface HostRules {
  readonly text: string;
  readonly refusal: string | null;
}

interface Entry {
  readonly rules: Promise<HostRules>;
  expiresMs: number;
}

export class RobotsRules {
  readonly #fetcher: GuardedFetcher;
  readonly #extractor: Extractor;
  readonly #entries = new LruMap<string, Entry>(maxHosts);

  constructor(fetcher: GuardedFetcher, extractor: Extractor) {
    this.#fetcher = fetcher;
    this.#extractor = extractor;
  }

  /** Throws invalid_value if the host does not allow this server to read the page. */
  async check(url: URL, owner: TaskOwner): Promise<void> {
    const { text, refusal } = await this.#rulesOf(url.origin);
    if (refusal !== null) throw refused(refusal);
    const robotsUrl = `${url.origin}/robots.txt`;
    if (text === "" || (await this.#extractor.run("robots", { text, robotsUrl, url: url.href }, owner))) return;
    throw refused(`robots.txt of ${url.host} does not allow this server to read the page`);
  }

  #rulesOf(origin: string): Promise<HostRules> {
    const known = this.#entries.get(origin);
    if (known !== undefined && performance.now() < known.expiresMs) return known.rules;
    const entry = { rules: this.#fetchRules(origin), expiresMs: performance.now() + lifetimeMs };
    this.#entries.set(origin, entry);
    void entry.rules.then(({ refusal }) => {
      if (refusal !== null) entry.expiresMs = performance.now() + failureMs;
    });
    return entry.rules;
  }

  /** Fetches the rules of a host. Not cancelled with a single request, because all requests that need the rules share the fetch. */
  async #fetchRules(origin: string): Promise<HostRules> {
    const { signal } = new AbortController();
    const request = { url: `${origin}/robots.txt`, limits, headers: { accept: "text/plain" }, checkHead: () => {} };
    try {
      return rulesIn(await this.#fetcher.fetch(request, signal));
    } catch (error) {
      const { message } = toErrorRecord(error);
      return { text: "", refusal: `robots.txt of ${new URL(origin).host} cannot be read: ${message}` };
    }
  }
}

function rulesIn({ url, status, body }: Fetched): HostRules {
  if (status >= 500) {
    return { text: "", refusal: `robots.txt of ${url.host} cannot be read: expected status 200 or 4xx, got ${status}` };
  }
  return { text: status === 200 ? new TextDecoder().decode(body) : "", refusal: null };
}
