// Page reader: fetches a page, subject to the host's rules and the request's domain rules, and extracts its main text.
import type { Fetched, GuardedFetcher, ResponseHead } from "../../runtime/web/guarded-fetch.ts";
import { refused } from "../../runtime/web/limits.ts";
import type { WebOptions } from "../api/agent/web.ts";
import { allowsUrl } from "./domains.ts";
import type { ExtractedText } from "./extract/page-text.ts";
import type { HostLimits } from "./host-limits.ts";
import type { Extractor } from "./readers/extractor.ts";
import { RobotsRules } from "./robots-rules.ts";

const limits = {
  headersMs: 8000,
  totalMs: 15_000,
  redirects: 5,
  sentBytes: 5 * 2 ** 20,
  bodyBytes: 10 * 2 ** 20,
  minBytesPerSecond: 2048,
} as const;
const accept =
  "text/html,application/xhtml+xml,text/plain,text/markdown,application/json,application/pdf;q=0.9,*/*;q=0.1";
const readableTypes = /^(?:text\/[\w.+-]+|application\/(?:xhtml\+xml|xml|json|pdf|[\w.-]+\+(?:xml|json)))$/;

export interface PageToRead {
  readonly url: string;
  readonly options: WebOptions;
  readonly client: string;
}

export interface ReadPage extends ExtractedText {
  /** URL after redirects. */
  readonly url: string;
}

export class PageReader {
  readonly #fetcher: GuardedFetcher;
  readonly #extractor: Extractor;
  readonly #hosts: HostLimits;
  readonly #robots: RobotsRules;

  constructor(fetcher: GuardedFetcher, extractor: Extractor, hosts: HostLimits) {
    this.#fetcher = fetcher;
    this.#extractor = extractor;
    this.#hosts = hosts;
    this.#robots = new RobotsRules(fetcher, extractor);
  }

  /** Reads a page. Throws invalid_value if the page is not allowed or cannot be fetched, unsupported if it has no text, or cancelled. */
  async read(page: PageToRead, signal: AbortSignal): Promise<ReadPage> {
    const { url, client } = page;
    const host = URL.canParse(url) ? new URL(url).host : "";
    const fetched = await this.#hosts.run(host, client, signal, () => this.#fetch(page, signal));
    const { title, text, isCut } = await this.#extract(fetched, { client, signal });
    if (text.trim() === "") throw refused("the page has no text");
    return { url: fetched.url.href, title: title || titleFrom(fetched.url), text, isCut };
  }

  async #fetch({ url, options, client }: PageToRead, signal: AbortSignal): Promise<Fetched> {
    const beforeHop = async (hop: URL, ended: AbortSignal): Promise<void> => {
      if (!allowsUrl(options, hop)) throw refused(`the request does not allow pages of ${hop.host}`);
      await this.#robots.check(hop, { client, signal: ended });
      await this.#hosts.pace(hop.host, ended);
    };
    return await this.#fetcher.fetch({ url, limits, headers: { accept }, beforeHop, checkHead }, signal);
  }

  async #extract(
    { url, headers, body }: Fetched,
    owner: { client: string; signal: AbortSignal },
  ): Promise<ExtractedText> {
    const contentType = headers["content-type"] ?? "";
    if (typeOf(contentType) === "application/pdf") {
      return { title: "", text: await this.#extractor.pdf(body, owner.client), isCut: false };
    }
    return await this.#extractor.run("page", { bytes: body, contentType, url: url.href }, owner);
  }
}

function checkHead({ url, status, headers }: ResponseHead): void {
  if (status !== 200) throw refused(`expected status 200 from ${url.host}, got ${status}`);
  const type = typeOf(headers["content-type"] ?? "");
  if (type !== "" && !readableTypes.test(type)) {
    throw refused(`expected a page, text, JSON or PDF file from ${url.host}, got ${type.slice(0, 100)}`);
  }
}

function typeOf(contentType: string): string {
  return (contentType.split(";")[0] ?? "").trim().toLowerCase();
}

/** Returns the last segment of the path, or the host if the path is empty. */
function titleFrom({ pathname, host }: URL): string {
  return pathname.split("/").at(-1) || host;
}
