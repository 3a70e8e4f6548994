// Server tools of a messages request: schemas of web search, web fetch and MCP servers, and their translation to options of an
// agent run.
import { z } from "zod";
import type { Conflict } from "../../shared/fields/conflicts.ts";
import { ignored, isEmptyArray, notBuiltYet, refused } from "../../shared/fields/fields.ts";
import { type NamedServer, serverLabel } from "../../shared/fields/tools/mcp-tool.ts";
import {
  domainsField,
  locationOf,
  placeFields,
  plainWebUse,
  type WebSearchOptions,
  type WebUse,
  webToolNames,
  webUseOf,
} from "../../shared/fields/tools/web-search.ts";

const MAX_SERVERS = 64;
const MAX_CONFIGS = 256;
const CONFIGURED = "the operator of this server configures MCP servers; send only the name of one";

const cacheControl = ignored(z.looseObject({ type: z.string() }), "the prefix cache is automatic");

/** Fields that all server tools have. */
export const serverToolFields = {
  cache_control: cacheControl,
  allowed_callers: refused("only the model calls tools here", isDirectCaller),
  defer_loading: notBuiltYet("loading tools later", (value) => value === false),
  strict: ignored(z.boolean(), "the arguments of server tools are always checked"),
} as const;

const webFields = {
  max_uses: z.int().min(1).nullish().meta({ description: "Maximum number of calls; further calls are not run." }),
  allowed_domains: domainsField,
  blocked_domains: domainsField,
  response_inclusion: ignored(z.enum(["full", "excluded"]), "the answer has all results"),
  ...serverToolFields,
} as const;

export const searchTool = z.strictObject({
  type: z.enum(["web_search_20250305", "web_search_20260209", "web_search_20260318"]),
  name: z.literal("web_search"),
  ...webFields,
  user_location: z
    .strictObject({ type: z.literal("approximate"), ...placeFields })
    .nullish()
    .meta({ description: "Approximate location of the user." }),
});

export const fetchTool = z.strictObject({
  type: z.enum(["web_fetch_20250910", "web_fetch_20260209", "web_fetch_20260309", "web_fetch_20260318"]),
  name: z.literal("web_fetch"),
  ...webFields,
  citations: ignored(z.looseObject({ enabled: z.boolean().nullish() }), "answers cite the sources that they name"),
  max_content_tokens: ignored(z.int().min(1), "the server limits the text of a page"),
  url_sources: ignored(z.unknown(), "the model may read every page that the domains allow"),
  use_cache: ignored(z.boolean(), "the server decides which pages it keeps"),
});

const toolConfig = z.strictObject({
  enabled: z.boolean().nullish(),
  defer_loading: serverToolFields.defer_loading,
});

export const mcpToolset = z.strictObject({
  type: z.literal("mcp_toolset"),
  mcp_server_name: serverLabel.meta({ description: "Name of an MCP server in the server's settings." }),
  default_config: toolConfig.nullish(),
  configs: z
    .record(z.string(), toolConfig)
    .refine((configs) => Object.keys(configs).length <= MAX_CONFIGS, { error: `expected at most ${MAX_CONFIGS} tools` })
    .nullish()
    .meta({ description: "Tools to offer or to leave out, by name." }),
  tools: refused("the server lists the tools itself", isEmptyArray),
  cache_control: cacheControl,
});

export const mcpServersField = z
  .array(
    z.strictObject({
      type: z.literal("url").nullish(),
      name: serverLabel.meta({ description: "Name of an MCP server in the server's settings." }),
      url: refused(CONFIGURED),
      authorization_token: refused(CONFIGURED),
      tool_configuration: z
        .strictObject({
          allowed_tools: z.array(serverLabel).max(MAX_CONFIGS).nullish(),
          enabled: z.boolean().nullish(),
        })
        .nullish(),
    }),
  )
  .max(MAX_SERVERS)
  .nullish()
  .meta({ description: "MCP servers whose tools the request offers." });

type SearchTool = z.output<typeof searchTool>;
type FetchTool = z.output<typeof fetchTool>;
type McpToolset = z.output<typeof mcpToolset>;

/** Server tools of a request, by kind. */
export interface SentServerTools {
  readonly search: SearchTool | undefined;
  readonly fetch: FetchTool | undefined;
  readonly toolsets: readonly McpToolset[];
}

/** Returns how the request uses the web tools. A web tool that the request does not list is not offered. */
export function webUseOfTools({ search, fetch }: SentServerTools, options: WebSearchOptions): WebUse {
  const tool = search ?? fetch;
  if (tool === undefined) return webUseOf(options);
  const domains = [search, fetch].find((one) => one?.allowed_domains || one?.blocked_domains);
  return {
    ...plainWebUse,
    options: {
      ...webUseOf(options).options,
      location: locationOf(search?.user_location),
      allowedDomains: domains?.allowed_domains ?? [],
      blockedDomains: domains?.blocked_domains ?? [],
    },
    maxUses: { ...uses(webToolNames.search, search), ...uses(webToolNames.page, fetch) },
    withoutTools: search === undefined ? [webToolNames.search] : fetch === undefined ? [webToolNames.page] : [],
  };
}

function uses(name: string, tool: SearchTool | FetchTool | undefined): Readonly<Record<string, number>> {
  return typeof tool?.max_uses === "number" ? { [name]: tool.max_uses } : {};
}

/** Yields a conflict if the two web tools have different domain lists, because an agent run has only one list. */
export function* domainConflicts({ search, fetch }: SentServerTools): Iterable<Conflict> {
  if (search === undefined || fetch === undefined) return;
  for (const field of ["allowed_domains", "blocked_domains"] as const) {
    if (`${[...(search[field] ?? [])].sort()}` === `${[...(fetch[field] ?? [])].sort()}`) continue;
    yield ["tools", `expected the same ${field} for web_search and web_fetch, which share them`];
  }
}

interface McpServer {
  readonly name: string;
  readonly tool_configuration?:
    | { readonly allowed_tools?: readonly string[] | null | undefined; readonly enabled?: boolean | null | undefined }
    | null
    | undefined;
}

/**
 * Returns the MCP servers that the request names. A toolset in `tools` takes precedence over the configuration in
 * `mcp_servers`.
 */
export function namedServers(
  { toolsets }: SentServerTools,
  servers: readonly McpServer[] | null | undefined,
): readonly NamedServer[] {
  const configured = (servers ?? []).filter(({ name }) => !toolsets.some((set) => set.mcp_server_name === name));
  return [
    ...toolsets.map(ofToolset),
    ...configured.map(({ name: label, tool_configuration: config }) => ({
      label,
      allowed: config?.enabled === false ? [] : (config?.allowed_tools ?? null),
    })),
  ];
}

function ofToolset({ mcp_server_name: label, default_config, configs }: McpToolset): NamedServer {
  const named = Object.entries(configs ?? {});
  const isOn = default_config?.enabled ?? true;
  const differing = named.filter(([, { enabled }]) => (enabled ?? isOn) !== isOn).map(([name]) => name);
  return isOn ? { label, allowed: null, denied: differing } : { label, allowed: differing };
}

export function isDirectCaller(value: unknown): boolean {
  return isEmptyArray(value) || (Array.isArray(value) && value.every((caller) => caller === "direct"));
}
