// Web results: the calls of web tools in the events of an agent run, the pages that they returned, and citations of these pages
// in the text of an answer.
import { builtInKind, hasFailed, type ProgressEvent } from "./progress-event.ts";

/** Page that a web tool returned. */
export interface WebPage {
  readonly url: string;
  readonly title: string;
  readonly description: string;
  /** Text of the page, or excerpts from it. */
  readonly content: string;
}

/** Returns the pages that a web tool call returned; null if the call failed, has not ended, or is a call of another tool. */
export function pagesOf(event: ProgressEvent): readonly WebPage[] | null {
  const kind = builtInKind(event);
  if ((kind !== "search" && kind !== "page") || event.record === null || hasFailed(event)) return null;
  const result = resultOf(event.record.result_content);
  if (result === null) return null;
  return kind === "search" ? (result.output ?? []) : [{ ...result, description: "" }];
}

/** Parses the result of a call; null if it is not JSON: if the user has edited the call, a note precedes its result. */
function resultOf(text: string): ({ readonly output?: readonly WebPage[] } & WebPage) | null {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Returns a text argument of a call; "" if the arguments are invalid or do not contain it. */
export function textArgument({ call }: Pick<ProgressEvent, "call">, name: "query" | "url"): string {
  try {
    const value = (JSON.parse(call.arguments) as Readonly<Record<string, unknown>> | null)?.[name];
    return typeof value === "string" ? value : "";
  } catch {
    return "";
  }
}

/** Citation of a web page in a text. `start` and `end`: UTF-16 offsets of the URL, or of the markdown link that contains it. */
export interface Citation {
  readonly start: number;
  readonly end: number;
  readonly page: WebPage;
  /** Index of the page among all pages returned in the agent run. */
  readonly index: number;
}

/** URLs in a text. A URL ends before characters of scripts that are written without spaces, and their punctuation such as `。`. */
const urls =
  /https?:\/\/[^\s<>"`|—\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\u3000-\u303f\uff00-\uffef]{1,2048}/gu;
/** Punctuation at the end of a matched URL. It probably belongs to the sentence or the link. */
const after = /[)\]}.,;:!?'*_]$/;
/** Maximum number of closing parentheses tried as the end of a URL in a markdown link. */
const MAX_ENDS = 32;
const MAX_LINK_TEXT = 512;

/** Pages returned by the web tools of an agent run. */
export class Sources {
  readonly #pages = new Map<string, { readonly page: WebPage; readonly index: number }>();

  get isEmpty(): boolean {
    return this.#pages.size === 0;
  }

  take(event: ProgressEvent): void {
    for (const page of pagesOf(event) ?? []) {
      const key = keyOf(page.url);
      if (!this.#pages.has(key)) this.#pages.set(key, { page, index: this.#pages.size });
    }
  }

  /** Returns the citations in a text, in order. URLs of pages that the web tools did not return are ignored. */
  citedIn(text: string): readonly Citation[] {
    if (this.isEmpty) return [];
    const cited: Citation[] = [];
    urls.lastIndex = 0;
    for (let match = urls.exec(text); match !== null; match = urls.exec(text)) {
      const { 0: found, index: start } = match;
      const url = candidates(found, text.startsWith("](", start - 2)).find((one) => this.#pages.has(keyOf(one)));
      if (url === undefined) continue;
      const known = this.#pages.get(keyOf(url)) as { readonly page: WebPage; readonly index: number };
      cited.push({ ...known, ...placeOf(text, start, start + url.length) });
      // The search continues directly after the URL, because the next URL may follow without a space.
      urls.lastIndex = start + url.length;
    }
    return cited;
  }
}

/**
 * Returns the possible URLs in a match, the longest first: the complete match, the match without the punctuation at its end,
 * and, in a markdown link, the text before each closing parenthesis.
 */
function candidates(found: string, isLink: boolean): readonly string[] {
  const ends: string[] = [];
  for (let url = found; ; url = url.slice(0, -1)) {
    ends.push(url);
    if (!after.test(url)) break;
  }
  if (!isLink) return ends;
  let at = found.length;
  for (let count = 0; count < MAX_ENDS; count++) {
    at = found.lastIndexOf(")", at - 1);
    if (at <= 0) break;
    ends.push(found.slice(0, at));
  }
  return ends.sort((one, other) => other.length - one.length);
}

/** Returns the URL without a slash at the end, so that URLs that differ only in this slash count as the same page. */
function keyOf(url: string): string {
  return url.endsWith("/") ? url.slice(0, -1) : url;
}

/** Returns the offsets of a URL, or of the markdown link that contains it. */
function placeOf(text: string, start: number, end: number): { readonly start: number; readonly end: number } {
  if (text[end] !== ")" || !text.startsWith("](", start - 2)) return { start, end };
  const open = text.lastIndexOf("[", start - 3);
  const isLink = open >= 0 && start - open <= MAX_LINK_TEXT && !text.slice(open, start).includes("\n");
  return isLink ? { start: open, end: end + 1 } : { start, end };
}
