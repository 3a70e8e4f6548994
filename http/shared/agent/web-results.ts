// Web results: the web tool calls in the events of a run, the pages that the calls returned, and the citations of these
// pages in the text of an answer.
import { builtInKind, hasFailed, type ProgressEvent } from "./progress-event.ts";

/** Page that a web tool returned. */
export interface WebPage {
  readonly url: string;
  readonly title: string;
  readonly description: string;
  /** Text of the page, or passages of it. */
  readonly content: string;
}

/** Returns the pages that a call returned; null if the call has failed, has not ended, or is of another tool. */
export function pagesOf(event: ProgressEvent): readonly WebPage[] | null {
  const kind = builtInKind(event);
  if ((kind !== "search" && kind !== "page") || event.record === null || hasFailed(event)) return null;
  const result = resultOf(event.record.result_content);
  if (result === null) return null;
  return kind === "search" ? (result.output ?? []) : [{ ...result, description: "" }];
}

/** Parses a result; null if it is not JSON, because a note precedes it. */
function resultOf(text: string): ({ readonly output?: readonly WebPage[] } & WebPage) | null {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Returns a text field of a call's arguments; "" if the arguments are invalid or lack the field. */
export function textArgument({ call }: Pick<ProgressEvent, "call">, name: "query" | "url"): string {
  try {
    const value = (JSON.parse(call.arguments) as Readonly<Record<string, unknown>> | null)?.[name];
    return typeof value === "string" ? value : "";
  } catch {
    return "";
  }
}

/**
 * Citation of a page in a text. `start` and `end`: UTF-16 offsets of the URL, or of the markdown link that contains it.
 */
export interface Citation {
  readonly start: number;
  readonly end: number;
  readonly page: WebPage;
  /** Index of the page among the pages of the run. */
  readonly index: number;
}

/** URLs in a text. Characters of scripts without spaces, and their punctuation such as `。`, end a URL. */
const urls =
  /https?:\/\/[^\s<>"`|—\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\u3000-\u303f\uff00-\uffef]{1,2048}/gu;
/** Punctuation after a URL that probably belongs to the sentence or the link, not to the URL. */
const after = /[)\]}.,;:!?'*_]$/;
/** Maximum number of closing parentheses that are tried as the end of a URL in a markdown link. */
const MAX_ENDS = 32;
const MAX_LINK_TEXT = 512;

/** Pages that the web tools of a run have returned. */
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
      // The next URL may follow without a space.
      urls.lastIndex = start + url.length;
    }
    return cited;
  }
}

/**
 * Returns the possible URLs in the matched text `found`, the longest first: the whole match, the match without the
 * punctuation at its end, and, in a markdown link, the part before each closing parenthesis.
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

/** Returns the URL without a slash at its end. URLs that differ only in this slash count as the same page. */
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
