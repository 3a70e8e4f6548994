// Search providers: their interface, and a function that requests JSON from a provider.
import { ServerError, toErrorRecord } from "../../../runtime/errors.ts";
import type { Fetched, FetchRequest, GuardedFetcher } from "../../../runtime/web/guarded-fetch.ts";
import type { WebOptions } from "../../api/agent/web.ts";
import type { SearchResult } from "../search-result.ts";

export interface SearchQuery {
  readonly text: string;
  /** Maximum number of results. */
  readonly count: number;
  readonly options: WebOptions;
  readonly client: string;
}

export interface SearchProvider {
  /** Returns search results, best first. Throws peer_gone if the provider does not respond or rejects the request, or cancelled. */
  search(query: SearchQuery, signal: AbortSignal): Promise<readonly SearchResult[]>;
}

const limits = {
  headersMs: 10_000,
  totalMs: 15_000,
  redirects: 0,
  sentBytes: 2 * 2 ** 20,
  bodyBytes: 4 * 2 ** 20,
  minBytesPerSecond: 1024,
} as const;

type ProviderRequest = Pick<FetchRequest, "method" | "headers" | "body"> & { readonly url: URL };

/** Sends a request to a provider. Error messages name the provider, but contain no part of the request, which may include the API key. */
export async function askProvider(
  provider: string,
  fetcher: GuardedFetcher,
  request: ProviderRequest,
  signal: AbortSignal,
): Promise<Fetched> {
  try {
    const { url, headers } = withoutUserInfo(request);
    const fetched = await fetcher.fetch({ ...request, url, headers, limits, checkHead: () => {} }, signal);
    if (fetched.status === 200 || fetched.status === 202) return fetched;
    throw providerError(provider, `expected status 200, got ${fetched.status}${adviceOf(fetched.status)}`);
  } catch (error) {
    if (error instanceof ServerError && error.code !== "invalid_value") throw error;
    throw providerError(provider, toErrorRecord(error).message);
  }
}

/** Returns the URL of a path below the base URL of a provider. The base URL may contain a path. */
export function providerUrl(base: string, path: string): URL {
  return new URL(`${base.replace(/\/+$/, "")}/${path}`);
}

/** Moves the user name and password of a URL into a header. */
function withoutUserInfo({ url: given, headers = {} }: ProviderRequest) {
  const url = new URL(given);
  const { username, password } = url;
  if (username === "" && password === "") return { url: url.href, headers };
  url.username = "";
  url.password = "";
  const pair = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  return { url: url.href, headers: { ...headers, authorization: `Basic ${Buffer.from(pair).toString("base64")}` } };
}

/** Returns the results in a JSON response. `read`: extracts the value that should be the list of results; it may be of any type. */
export async function jsonResults(
  provider: string,
  fetched: Fetched,
  read: (answer: Readonly<Record<string, unknown>>) => unknown,
  descriptionField: string,
): Promise<readonly SearchResult[]> {
  const list = read(parse(provider, fetched.body));
  if (list === undefined || list === null) return [];
  if (!Array.isArray(list)) throw providerError(provider, "expected a list of results in its answer");
  return list.flatMap((entry: Readonly<Record<string, unknown>> | null) => {
    const { title, url, [descriptionField]: description } = entry ?? {};
    if (typeof url !== "string" || !URL.canParse(url)) return [];
    return [{ title: plain(title), url, description: plain(description) }];
  });
}

function parse(provider: string, body: Uint8Array): Readonly<Record<string, unknown>> {
  try {
    const answer: unknown = JSON.parse(new TextDecoder().decode(body));
    if (typeof answer === "object" && answer !== null) return answer as Readonly<Record<string, unknown>>;
  } catch {
    // Invalid JSON is reported below.
  }
  throw providerError(provider, "expected JSON as its answer");
}

/** Returns a text without HTML tags; "" if the value is not a string. */
function plain(value: unknown): string {
  if (typeof value !== "string") return "";
  return value
    .replaceAll(/<[^<>]{0,200}>/g, "")
    .replaceAll(/\s+/g, " ")
    .trim();
}

export function providerError(provider: string, message: string): ServerError {
  return new ServerError("peer_gone", `the search provider ${provider} does not answer as expected: ${message}`);
}

function adviceOf(status: number): string {
  if (status === 401 || status === 403) return "; check its key (SEARCH_API_KEY)";
  return status === 429 ? "; its limit of requests is reached, try again later" : "";
}
