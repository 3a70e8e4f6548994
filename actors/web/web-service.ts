// Web service: searches the web and reads pages. A search queries the provider, reads the found pages in parallel, and selects
// the passages that match the query best.
import { ServerError, toErrorRecord } from "../../runtime/errors.ts";
import type { FoundPage, PageText, SearchContextSize, WebOptions } from "../api/agent/web.ts";
import { allowsUrl } from "./domains.ts";
import type { PageReader, ReadPage } from "./page-reader.ts";
import type { SearchProvider } from "./providers/provider.ts";
import { passagesOf, wholeLength } from "./ranking/passages.ts";
import { type Embed, embeddingScores, type Passage } from "./ranking/scores.ts";
import { selectPassages } from "./ranking/select.ts";
import type { Extractor } from "./readers/extractor.ts";
import type { SearchResult } from "./search-result.ts";

/** Maximum number of concurrent calls, in total and per client. */
const maxCalls = 128;
const maxCallsOfClient = 32;
/** Time limits in ms: of a search, of one page of a search, and of a read. They include the time spent in queues. */
const searchMs = 45_000;
const foundPageMs = 12_000;
const readMs = 30_000;
const contextTokens: Readonly<Record<SearchContextSize, number>> = { low: 4096, medium: 8192, high: 16_384 };
const charactersPerToken = 4;
/** Maximum number of characters that are ranked: of all found pages together, and of one page. */
const rankedTotal = 262_144;
const rankedLength = 131_072;

export interface WebServiceOptions {
  readonly provider: SearchProvider;
  readonly reader: PageReader;
  readonly extractor: Extractor;
  /** Maximum number of results of a search. */
  readonly results: number;
  /** Embeds texts to rank passages; null = passages are ranked by BM25. */
  readonly embed: ((...call: [...Parameters<Embed>, client: string, signal: AbortSignal]) => ReturnType<Embed>) | null;
  readonly warn: (fields: object, message: string) => void;
}

interface Call {
  readonly options: WebOptions;
  readonly client: string;
}

export class WebService {
  readonly #options: WebServiceOptions;
  readonly #callsOf = new Map<string, number>();
  #calls = 0;

  constructor(options: WebServiceOptions) {
    this.#options = options;
  }

  /** Searches the web, as described at Web.search. */
  search(call: Call & { readonly query: string }, signal: AbortSignal): Promise<readonly FoundPage[]> {
    return this.#run(call, searchMs, signal, (ended) => this.#search(call, ended));
  }

  /** Reads a page, as described at Web.read. */
  read(call: Call & { readonly url: string }, signal: AbortSignal): Promise<PageText> {
    return this.#run(call, readMs, signal, async (ended) => {
      const { url, title, text, isCut } = await this.#options.reader.read(call, ended);
      const content = text.slice(0, wholeLength(text, budgetOf(call.options)));
      return { url, title, content, isCut: isCut || content.length < text.length };
    });
  }

  async #search(call: Call & { readonly query: string }, signal: AbortSignal): Promise<readonly FoundPage[]> {
    const { query: text, options, client } = call;
    const { provider, results: count } = this.#options;
    const found = await provider.search({ text, count, options, client }, signal);
    const results = distinct(found.filter(({ url }) => isReadable(url, options))).slice(0, count);
    const pages = await Promise.all(results.map(({ url }) => this.#tryToRead({ url, options, client }, signal)));
    if (signal.aborted) throw cancelled();
    return await this.#select(call, results, pages, signal);
  }

  /** Reads a found page; null = it cannot be read. */
  async #tryToRead(page: Call & { readonly url: string }, signal: AbortSignal): Promise<ReadPage | null> {
    try {
      return await within(foundPageMs, signal, (ended) => this.#options.reader.read(page, ended));
    } catch {
      return null;
    }
  }

  async #select(
    { query, options, client }: Call & { readonly query: string },
    results: readonly SearchResult[],
    pages: readonly (ReadPage | null)[],
    signal: AbortSignal,
  ): Promise<readonly FoundPage[]> {
    const length = Math.min(rankedLength, Math.floor(rankedTotal / Math.max(1, results.length)));
    const passages = results.flatMap(({ title, description }, page): readonly Passage[] => {
      const text = pages[page]?.text ?? description;
      return passagesOf(text.slice(0, wholeLength(text, length))).map((passage) => ({
        page,
        title,
        text: passage,
      }));
    });
    const scores = await this.#scores(query, passages, client, signal);
    const selected = selectPassages(passages, scores, budgetOf(options));
    const contents = new Map(selected.map(({ page, content }) => [page, content]));
    const order = [...new Set([...contents.keys(), ...results.keys()])];
    return order.map((page) => {
      const { title, url, description } = results[page] as SearchResult;
      return { title: title || (pages[page]?.title ?? ""), url, description, content: contents.get(page) ?? "" };
    });
  }

  async #scores(query: string, passages: readonly Passage[], client: string, signal: AbortSignal) {
    const { embed, warn, extractor } = this.#options;
    const bm25 = await extractor
      .run("scores", { query, passages }, { client, signal })
      .catch((error): readonly number[] => {
        if (signal.aborted) throw cancelled();
        warn({ reason: toErrorRecord(error).message }, "search results keep the order of the provider: ranking fails");
        return passages.map(() => 0);
      });
    if (embed === null || passages.length === 0) return bm25;
    try {
      return await embeddingScores(query, passages, bm25, (texts, inputType) =>
        embed(texts, inputType, client, signal),
      );
    } catch (error) {
      if (signal.aborted) throw cancelled();
      warn(
        { reason: toErrorRecord(error).message },
        "search results are ranked by their words: the embedding model fails",
      );
      return bm25;
    }
  }

  /** Runs a call within its time limit and the limits on concurrent calls. */
  async #run<T>({ client }: Call, limitMs: number, signal: AbortSignal, run: (signal: AbortSignal) => Promise<T>) {
    const ofClient = this.#callsOf.get(client) ?? 0;
    if (this.#calls >= maxCalls || ofClient >= maxCallsOfClient) throw tooMany();
    this.#calls++;
    this.#callsOf.set(client, ofClient + 1);
    try {
      return await within(limitMs, signal, run);
    } finally {
      this.#calls--;
      const rest = (this.#callsOf.get(client) ?? 1) - 1;
      if (rest === 0) this.#callsOf.delete(client);
      else this.#callsOf.set(client, rest);
    }
  }
}

/** Runs a function with a signal that is also aborted at the time limit. Throws timeout after the limit. */
async function within<T>(limitMs: number, signal: AbortSignal, run: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const ended = new AbortController();
  const end = (): void => ended.abort();
  const timer = setTimeout(end, limitMs);
  signal.addEventListener("abort", end, { once: true });
  try {
    if (signal.aborted) throw cancelled();
    return await run(ended.signal);
  } catch (error) {
    if (ended.signal.aborted && !signal.aborted) {
      throw new ServerError("timeout", `expected an answer of the web within ${limitMs} ms; it took longer`);
    }
    throw error;
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", end);
  }
}

function budgetOf({ contextSize }: WebOptions): number {
  return contextTokens[contextSize] * charactersPerToken;
}

function isReadable(url: string, options: WebOptions): boolean {
  return URL.canParse(url) && /^https?:$/.test(new URL(url).protocol) && allowsUrl(options, new URL(url));
}

function distinct(results: readonly SearchResult[]): readonly SearchResult[] {
  return [...new Map(results.map((result) => [new URL(result.url).href, result])).values()];
}

function tooMany(): ServerError {
  return new ServerError("queue_full", "too many searches and page reads run at once; try again shortly", {
    retryAfterSeconds: 5,
  });
}

function cancelled(): ServerError {
  return new ServerError("cancelled", "the request was cancelled while the web was searched");
}
