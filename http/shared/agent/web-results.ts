// Web results: calls of the web tools in the events of a run, the pages that they found, and the places of an answer's text that
// name these pages.
import type { AgentEvent } from "../../../actors/api/agent/agents.ts";
import { webToolNames } from "../fields/tools/web-search.ts";

export type ProgressEvent = Extract<AgentEvent, { readonly type: "tool_progress" }>;

/** A page that a web tool returned. */
export interface WebPage {
  readonly url: string;
  readonly title: string;
  readonly description: string;
  /** Text of the page, or passages of it. */
  readonly content: string;
}

/** Kind of a call of a web tool; null: the call is of another tool. */
export function webKind({ call, toolType }: Pick<ProgressEvent, "call" | "toolType">): "search" | "page" | null {
  // A function that a client or a program declares may have the name of a web tool.
  if (toolType !== "web_search") return null;
  if (call.name === webToolNames.search) return "search";
  return call.name === webToolNames.page ? "page" : null;
}

/** Returns the pages that a call returned; null: the call has failed, has not ended, or is of another tool. */
export function pagesOf(event: ProgressEvent): readonly WebPage[] | null {
  const kind = webKind(event);
  if (kind === null || event.record === null || event.data.status !== undefined) return null;
  const result = resultOf(event.record.result_content);
  if (result === null) return null;
  return kind === "search" ? (result.output ?? []) : [{ ...result, description: "" }];
}

/** Parses a result; null: it is not JSON, because a note comes before it. */
function resultOf(text: string): ({ readonly output?: readonly WebPage[] } & WebPage) | null {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Returns the text field of a call's arguments; "": the model wrote none. */
export function textArgument({ call }: Pick<ProgressEvent, "call">, name: "query" | "url"): string {
  try {
    const value = (JSON.parse(call.arguments) as Readonly<Record<string, unknown>> | null)?.[name];
    return typeof value === "string" ? value : "";
  } catch {
    return "";
  }
}

/** A place of a text that names a page. `start` and `end`: UTF-16 positions of the link or the URL. */
export interface Citation {
  readonly start: number;
  readonly end: number;
  readonly page: WebPage;
  /** Position of the page among the pages of the run. */
  readonly index: number;
}

/** Characters of URLs. Those of scripts without spaces, such as `。`, end a URL in a text. */
const urls =
  /https?:\/\/[^\s<>"`|—\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\u3000-\u303f\uff00-\uffef]{1,2048}/gu;
/** Characters that end a sentence or a link, rather than a URL. */
const after = /[)\]}.,;:!?'*_]$/;
/** Maximum number of parentheses at which a URL in a link is looked for. */
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

  /** Returns the places of the text that name a page, in order. Other URLs are not citations. */
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
      // What follows the URL may be the next one, without a space between them.
      urls.lastIndex = start + url.length;
    }
    return cited;
  }
}

/**
 * Returns the URLs that a text may mean with what `found` is: the whole, without the punctuation after it, and, in a markdown
 * link, the parts before each closing parenthesis. The longest come first.
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

/** The same page with and without a slash at the end. */
function keyOf(url: string): string {
  return url.endsWith("/") ? url.slice(0, -1) : url;
}

/** Returns the place of a URL, or of the markdown link that it belongs to. */
function placeOf(text: string, start: number, end: number): { readonly start: number; readonly end: number } {
  if (text[end] !== ")" || !text.startsWith("](", start - 2)) return { start, end };
  const open = text.lastIndexOf("[", start - 3);
  const isLink = open >= 0 && start - open <= MAX_LINK_TEXT && !text.slice(open, start).includes("\n");
  return isLink ? { start: open, end: end + 1 } : { start, end };
}
