// Lists of an MCP server: reads its tools, resources and prompts page by page, up to a limit.
import {
  type Client,
  type Prompt,
  ProtocolError,
  ProtocolErrorCode,
  type Resource,
  type ResourceTemplateType,
  type Tool,
} from "@modelcontextprotocol/client";
import { ServerError } from "../../runtime/errors.ts";
import { connectTimeoutMs, type McpSession, unlimited } from "./mcp-session.ts";

/** Maximum number of entries of a list. Further entries are omitted. */
export const maxListed = 1000;
const MAX_PAGES = 100;

interface Page<T> {
  readonly items: readonly T[];
  readonly next: string | undefined;
}

type ReadPage<T> = (client: Client, params: { readonly cursor?: string }) => Promise<Page<T>>;

/** Returns at most maxListed + 1 tools; the extra one shows that there are more than the limit. */
export async function listTools(session: McpSession): Promise<readonly Tool[]> {
  if (session.capabilities.tools === undefined) return [];
  return await pages("tools", session, async (client, params) => {
    const page = await client.request({ method: "tools/list", params }, { timeout: connectTimeoutMs });
    return { items: page.tools, next: page.nextCursor };
  });
}

/** Returns the resources and the resource templates. */
export async function listResources(
  session: McpSession,
  signal: AbortSignal,
): Promise<readonly (Resource | ResourceTemplateType)[]> {
  const options = { ...unlimited, signal };
  const resources = await pages("resources", session, async (client, params) => {
    const page = await client.request({ method: "resources/list", params }, options);
    return { items: page.resources, next: page.nextCursor };
  });
  const templates = await pages("resource templates", session, async (client, params) => {
    const page = await client.request({ method: "resources/templates/list", params }, options);
    return { items: page.resourceTemplates, next: page.nextCursor };
  }).catch(noTemplates);
  return [...resources, ...templates];
}

export async function listPrompts(session: McpSession, signal: AbortSignal): Promise<readonly Prompt[]> {
  return await pages("prompts", session, async (client, params) => {
    const page = await client.request({ method: "prompts/list", params }, { ...unlimited, signal });
    return { items: page.prompts, next: page.nextCursor };
  });
}

async function pages<T>(what: string, session: McpSession, read: ReadPage<T>): Promise<readonly T[]> {
  const items: T[] = [];
  let params: { readonly cursor?: string } = {};
  for (let count = 0; count < MAX_PAGES; count++) {
    const { items: more, next } = await session.ask((client) => read(client, params));
    items.push(...more);
    if (next === undefined || items.length > maxListed) return items.slice(0, maxListed + 1);
    params = { cursor: next };
  }
  throw new ServerError("peer_gone", `its list of ${what} has more than ${MAX_PAGES} pages`);
}

/** Returns an empty list if the server does not know the method, because servers without templates may not implement it. */
function noTemplates(error: unknown): readonly [] {
  if (ProtocolError.isInstance(error) && error.code === ProtocolErrorCode.MethodNotFound) return [];
  throw error;
}
