// Web blocks: calls of the web tools in the format of the messages protocol, and citations of the returned pages. The blocks
// contain the text that the model read, so a request that sends them back needs no session.
import { z } from "zod";
import { wholeLength } from "../../actors/web/ranking/passages.ts";
import { builtInKind, type ProgressEvent } from "../shared/agent/progress-event.ts";
import { pagesOf, type Sources, type WebPage } from "../shared/agent/web-results.ts";

const MAX_CITED_TEXT = 150;

const searchErrors = ["invalid_tool_input", "unavailable", "max_uses_exceeded", "too_many_requests"] as const;
const fetchErrors = [...searchErrors, "url_not_allowed", "url_not_accessible", "unsupported_content_type"] as const;

const searchResultSchema = z.strictObject({
  type: z.literal("web_search_result"),
  url: z.string(),
  title: z.string(),
  encrypted_content: z.string().meta({ description: "Opaque content: what the model read of the page." }),
  page_age: z.null(),
});

const document = z.strictObject({
  type: z.literal("document"),
  source: z.strictObject({ type: z.literal("text"), media_type: z.literal("text/plain"), data: z.string() }),
  title: z.string().nullable(),
  citations: z.null(),
});

const caller = z.strictObject({ type: z.literal("direct") });

export const webBlockSchemas = [
  z.strictObject({
    type: z.literal("web_search_tool_result"),
    tool_use_id: z.string(),
    caller,
    content: z.union([
      z.array(searchResultSchema),
      z.strictObject({ type: z.literal("web_search_tool_result_error"), error_code: z.enum(searchErrors) }),
    ]),
  }),
  z.strictObject({
    type: z.literal("web_fetch_tool_result"),
    tool_use_id: z.string(),
    caller,
    content: z.union([
      z.strictObject({
        type: z.literal("web_fetch_result"),
        url: z.string(),
        content: document,
        retrieved_at: z.string().nullable(),
      }),
      z.strictObject({ type: z.literal("web_fetch_tool_result_error"), error_code: z.enum(fetchErrors) }),
    ]),
  }),
] as const;

type WebResultBlock = z.output<(typeof webBlockSchemas)[number]>;

export const citationSchema = z.strictObject({
  type: z.literal("web_search_result_location"),
  url: z.string(),
  title: z.string(),
  cited_text: z.string().meta({ description: "Beginning of the page's description or text." }),
  encrypted_index: z.string().meta({ description: "Opaque: the page among those of the run." }),
});

export type WebCitation = z.output<typeof citationSchema>;

/** Returns the block of a web tool's result. `session`: session of the agent run. */
export function webResultBlock(event: ProgressEvent, tool_use_id: string, session: string): WebResultBlock {
  const common = { tool_use_id, caller: { type: "direct" } } as const;
  const pages = pagesOf(event);
  if (builtInKind(event) === "search") {
    const content = pages?.map((page) => searchResult(page, session));
    return { type: "web_search_tool_result", ...common, content: content ?? searchError(event) };
  }
  return { type: "web_fetch_tool_result", ...common, content: pages?.[0] ? fetchResult(pages[0]) : fetchError(event) };
}

function searchResult({ url, title, description, content }: WebPage, session: string) {
  const held = { session, description, content } satisfies HeldContent;
  const encrypted_content = Buffer.from(JSON.stringify(held)).toString("base64");
  return { type: "web_search_result", url, title, encrypted_content, page_age: null } as const;
}

function fetchResult({ url, title, content: data }: WebPage) {
  const source = { type: "text", media_type: "text/plain", data } as const;
  const content = { type: "document", source, title, citations: null } as const;
  return { type: "web_fetch_result", url, content, retrieved_at: new Date().toISOString() } as const;
}

function searchError(event: ProgressEvent) {
  return { type: "web_search_tool_result_error", error_code: commonError(event) } as const;
}

function fetchError(event: ProgressEvent) {
  const code = event.data.error_code;
  const error_code = (typeof code === "string" ? fetchCodes[code] : undefined) ?? commonError(event);
  return { type: "web_fetch_tool_result_error", error_code } as const;
}

const fetchCodes: Readonly<Record<string, (typeof fetchErrors)[number]>> = {
  invalid_value: "url_not_allowed",
  forbidden: "url_not_allowed",
  unsupported: "unsupported_content_type",
  peer_gone: "url_not_accessible",
  timeout: "url_not_accessible",
};

/** Returns the protocol's error code for a failed call. */
function commonError({ data: { error_code: code } }: ProgressEvent): (typeof searchErrors)[number] {
  if (code === "max_uses_exceeded") return code;
  if (code === "invalid_value" || code === "internal") return "invalid_tool_input";
  return code === "queue_full" ? "too_many_requests" : "unavailable";
}

/** Decoded field `encrypted_content` of a web page: session of the agent run, and the page's description and content. */
interface HeldContent {
  readonly session: string;
  readonly description: string;
  readonly content: string;
}

/** Decodes `encrypted_content`. Returns null if this server did not create it. */
export function heldContent(text: string): HeldContent | null {
  try {
    const { session, description, content } = JSON.parse(`${Buffer.from(text, "base64")}`) as Record<string, unknown>;
    if ([session, description, content].some((value) => typeof value !== "string")) return null;
    return { session, description, content } as HeldContent;
  } catch {
    return null;
  }
}

/** Returns the citations in a text that refer to pages in `sources`. */
export function citationsOf(sources: Sources, text: string): readonly WebCitation[] {
  return sources.citedIn(text).map(({ page: { url, title, description, content }, index }) => ({
    type: "web_search_result_location",
    url,
    title,
    cited_text: cut(description === "" ? content : description),
    encrypted_index: Buffer.from(`${index}`).toString("base64"),
  }));
}

/** Returns the beginning of a text. Never splits a character. */
function cut(text: string): string {
  return text.slice(0, wholeLength(text, MAX_CITED_TEXT));
}
