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

const urls = /https?:\/\/[^\s<>"`]{1,2048}/g;
/** Characters that end a sentence or a link, rather than a URL. */
const after = /[)\]}.,;:!?'*_]$/;
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
    return [...text.matchAll(urls)].flatMap(({ 0: found, index: start }) => {
      for (let url = found; ; url = url.slice(0, -1)) {
        const known = this.#pages.get(keyOf(url));
        if (known !== undefined) return [{ ...known, ...placeOf(text, start, start + url.length) }];
        if (!after.test(url)) return [];
      }
    });
  }
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
