// Settings of MCP servers from their configuration file: substitutes environment variables, and collects the secrets that must
// not be logged.
import { resolve } from "node:path";
import type { McpServerSettings, McpServerSource } from "../../../actors/api/agent/mcp.ts";
import { type McpConfig, type McpServerConfig, mcpConfigError } from "./mcp-config.ts";

type Environment = Readonly<Record<string, string | undefined>>;

const WHOLE_PREFIX = "env:";
const reference = /\$\{([A-Za-z_][A-Za-z0-9_]*)\}/g;
/** Minimum length in characters of a secret. Shorter values of variables, such as "true", are not removed from logs. */
const MIN_SECRET_LENGTH = 6;

/**
 * Returns the settings of the enabled servers. Throws config_invalid with a message that names the wrong field. `path`: path of
 * the file.
 */
export function mcpServerSettings(config: McpConfig, path: string, environment: Environment): McpServerSettings[] {
  const settings = config.servers.flatMap((server, i) => {
    const fill = (field: string, value: string): string =>
      filled(value, environment, path, config.fieldOf(["servers", i, ...field.split(".")]).join("."));
    return server.enabled === false ? [] : [settingsOf(server, config.tool_timeout_secs, path, `servers.${i}`, fill)];
  });
  for (const [i, { id }] of settings.entries()) {
    if (settings.findIndex((other) => other.id === id) === i) continue;
    throw mcpConfigError(path, "servers", `expects a different id (or name) for each server; got "${id}" twice`);
  }
  return settings;
}

type Fill = (field: string, value: string) => string;

function settingsOf(
  server: McpServerConfig,
  toolTimeoutSecs: number,
  path: string,
  field: string,
  fill: Fill,
): McpServerSettings {
  const { name, id, source, tool_prefix, bearer_token, resources } = server;
  const token = bearer_token == null ? null : fill("bearer_token", bearer_token);
  if (source.type === "Process" && token !== null) {
    throw mcpConfigError(path, `${field}.bearer_token`, "is for servers with a url; use env for a Process");
  }
  const from = sourceOf(source, token, path, field, fill);
  const timeoutSecs = source.type === "Process" ? null : source.timeout_secs;
  return {
    id: id ?? name,
    name,
    source: from,
    toolPrefix: tool_prefix ?? null,
    resources: resources ?? null,
    callTimeoutMs: (timeoutSecs ?? toolTimeoutSecs) * 1000,
    secrets: secretsOf(from, token),
  };
}

function sourceOf(
  source: McpServerConfig["source"],
  token: string | null,
  path: string,
  field: string,
  fill: Fill,
): McpServerSource {
  if (source.type === "Process") {
    const { command, args, env, work_dir } = source;
    const environment = filledRecord("source.env", env ?? {}, fill);
    return {
      type: "process",
      command,
      args: args ?? [],
      environment,
      workFolder: work_dir == null ? null : resolve(work_dir),
    };
  }
  const type = ({ Http: "http", Sse: "sse", WebSocket: "websocket" } as const)[source.type];
  const headers = filledRecord("source.headers", source.headers ?? {}, fill);
  if (token !== null && Object.keys(headers).some((name) => name.toLowerCase() === "authorization")) {
    throw mcpConfigError(path, `${field}.bearer_token`, "and a header authorization exclude each other");
  }
  return {
    type,
    url: source.url,
    headers: token === null ? headers : { ...headers, authorization: `Bearer ${token}` },
  };
}

function filledRecord(field: string, values: Readonly<Record<string, string>>, fill: Fill): Record<string, string> {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, fill(`${field}.${name}`, value)]));
}

/** Replaces `${NAME}` by the value of the environment variable NAME. Also replaces a value that consists only of `env:NAME`. */
function filled(value: string, environment: Environment, path: string, field: string): string {
  const read = (name: string): string => {
    const found = environment[name];
    if (found === undefined)
      throw mcpConfigError(path, field, `needs the environment variable ${name}, which is not set`);
    return found;
  };
  if (value.startsWith(WHOLE_PREFIX)) return read(value.slice(WHOLE_PREFIX.length));
  return value.replace(reference, (_, name: string) => read(name));
}

/** Returns the values that must not be logged: values of headers, variables and URL parameters, the longest first. */
function secretsOf(source: McpServerSource, token: string | null): readonly string[] {
  const values =
    source.type === "process"
      ? Object.values(source.environment)
      : [...Object.values(source.headers), ...urlValues(new URL(source.url))];
  return [...values, token ?? ""]
    .filter((value) => value.length >= MIN_SECRET_LENGTH)
    .sort((one, other) => other.length - one.length);
}

/** Returns the values of a URL's query parameters, both decoded and as written in the URL. */
function urlValues({ search, searchParams }: URL): readonly string[] {
  const raw = search
    .slice(1)
    .split("&")
    .map((pair) => pair.slice(pair.indexOf("=") + 1));
  return [...searchParams.values(), ...raw];
}
