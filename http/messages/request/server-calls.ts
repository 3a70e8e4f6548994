// Earlier server calls: calls of web tools and MCP tools that a request sends back, with the results that the model read. Omits
// code execution blocks and blocks of other servers, because they do not contain the text that the model read.
import { z } from "zod";
import { isBounded } from "../../shared/fields/bounded.ts";
import { webToolNames } from "../../shared/fields/tools/web-search.ts";
import { callOfBlock } from "../server-blocks.ts";
import { heldContent } from "../web-blocks.ts";
import type { AssistantContent } from "./content.ts";

const input = z.record(z.string(), z.unknown()).refine(isBounded);
const use = z.discriminatedUnion("type", [
  z.looseObject({ type: z.literal("server_tool_use"), id: z.string(), name: z.string(), input }),
  z.looseObject({ type: z.literal("mcp_tool_use"), id: z.string(), name: z.string(), input }),
]);

const failure = z.looseObject({ error_code: z.string() });
const found = z.looseObject({ url: z.string(), title: z.string(), encrypted_content: z.string() });
const fetched = z.looseObject({
  url: z.string(),
  content: z.looseObject({ title: z.string().nullish(), source: z.looseObject({ data: z.string() }) }),
});
const result = z.discriminatedUnion("type", [
  z.looseObject({
    type: z.literal("web_search_tool_result"),
    tool_use_id: z.string(),
    content: z.union([z.array(found), failure]),
  }),
  z.looseObject({
    type: z.literal("web_fetch_tool_result"),
    tool_use_id: z.string(),
    content: z.union([fetched, failure]),
  }),
  z.looseObject({
    type: z.literal("mcp_tool_result"),
    tool_use_id: z.string(),
    content: z.union([z.string(), z.array(z.looseObject({ text: z.string() }))]),
  }),
]);

type Block = Exclude<AssistantContent, string>[number];
type Result = z.output<typeof result>;

/** Call of a server tool, with the result text that the model read. */
export interface ServerCall {
  readonly round: number;
  readonly id: string;
  readonly name: string;
  readonly arguments: string;
  readonly result: string;
  /** Session in which the call ran; null if the blocks contain no session. */
  readonly session: string | null;
}

/** Maps the names of web tools in blocks to the tool names that the model sees. */
const webNames: ReadonlyMap<unknown, string> = new Map([
  ["web_search", webToolNames.search],
  ["web_fetch", webToolNames.page],
]);

/** Returns whether an assistant message has a call whose blocks do not contain the result text that the model read. */
export function hasOpaqueCall(blocks: readonly Block[]): boolean {
  return blocks.some((block) => block.type === "server_tool_use" && !webNames.has(block.name));
}

/** Returns the server calls of an assistant message, by block id. Omits calls without a readable result. */
export function serverCalls(blocks: readonly Block[]): ReadonlyMap<string, ServerCall> {
  const results = new Map(
    blocks.flatMap((block) => {
      const { data } = result.safeParse(block);
      const text = data === undefined ? null : textOf(data);
      return data === undefined || text === null ? [] : [[data.tool_use_id, { text, session: sessionOf(data) }]];
    }),
  );
  return new Map(
    blocks.flatMap((block) => {
      const { data } = use.safeParse(block);
      const ended = data && results.get(data.id);
      const call = data && callOfBlock(data.id);
      if (!data || !ended || !call) return [];
      const name = data.type === "mcp_tool_use" ? data.name : (webNames.get(data.name) ?? data.name);
      const { text, session } = ended;
      return [[data.id, { ...call, name, arguments: JSON.stringify(data.input), result: text, session }]];
    }),
  );
}

/** Returns the result text that the model read; null if this server did not create the block. */
function textOf({ type, content }: Result): string | null {
  if (type === "mcp_tool_result") {
    return typeof content === "string" ? content : content.map(({ text }) => text).join("\n");
  }
  if ("error_code" in content) return JSON.stringify({ status: "error", error: content.error_code });
  if (type === "web_fetch_tool_result") {
    const { title, source } = content.content as z.output<typeof fetched>["content"];
    return JSON.stringify({ url: content.url, title: title ?? "", content: source.data });
  }
  return searchText(content as readonly z.output<typeof found>[]);
}

function searchText(pages: readonly z.output<typeof found>[]): string | null {
  const output = pages.map(({ url, title, encrypted_content }) => {
    const held = heldContent(encrypted_content);
    return held === null ? null : { title, description: held.description, url, content: held.content };
  });
  if (output.includes(null)) return null;
  return JSON.stringify({ sources: pages.map(({ title, url }) => ({ title, url })), output });
}

function sessionOf({ type, content }: Result): string | null {
  if (type !== "web_search_tool_result" || !Array.isArray(content)) return null;
  const session = content[0] === undefined ? null : heldContent(content[0].encrypted_content)?.session;
  return session !== null && session !== undefined && /^[A-Za-z0-9_-]{1,128}$/.test(session) ? session : null;
}
