// Configuration file of MCP servers (mcp_config): reads the file and checks its schema. The file has troupe's own form, or the
// form of other MCP clients (`mcpServers`).
import { open } from "node:fs/promises";
import { z } from "zod";
import { ServerError } from "../../../runtime/errors.ts";

const MAX_FILE_BYTES = 2 ** 20;
const MAX_SERVERS = 100;
const maxSeconds = 86_400;

const text = z.string().min(1).max(32_768);
const texts = z.record(z.string().min(1), z.string());
const seconds = z.int().min(1).max(maxSeconds);
const httpUrl = z.url({ protocol: /^https?$/, error: "expects a URL of http or https" }).refine(...withoutUser());
const webSocketUrl = z.url({ protocol: /^wss?$/, error: "expects a URL of ws or wss" }).refine(...withoutUser());

const remote = { headers: texts.nullish(), timeout_secs: seconds.nullish() };
const source = z.discriminatedUnion("type", [
  z.strictObject({
    type: z.literal("Process"),
    command: text,
    args: z.array(z.string()).nullish(),
    env: texts.nullish(),
    work_dir: text.nullish(),
  }),
  z.strictObject({ type: z.literal("Http"), url: httpUrl, ...remote }),
  z.strictObject({ type: z.literal("Sse"), url: httpUrl, ...remote }),
  z.strictObject({ type: z.literal("WebSocket"), url: webSocketUrl, ...remote }),
]);

const server = z.strictObject({
  name: text.max(128),
  id: text.max(128).nullish(),
  source,
  enabled: z.boolean().nullish(),
  tool_prefix: z
    .string()
    .regex(/^[a-zA-Z0-9_-]{1,64}$/, "expects 1 to 64 letters, digits, _ and -")
    .nullish(),
  bearer_token: text.nullish(),
  resources: z.array(text).max(1000).nullish(),
});

const shared = {
  auto_register_tools: z.boolean().default(true),
  tool_timeout_secs: seconds.default(30),
  max_concurrent_calls: z.int().min(1).max(1024).default(10),
};

const ownForm = z.strictObject({ servers: z.array(server).max(MAX_SERVERS), ...shared });

/** Schema of one server in the form of other MCP clients. */
const commonServer = z.union([
  z.strictObject({
    type: z.literal("stdio").optional(),
    command: text,
    args: z.array(z.string()).optional(),
    env: texts.optional(),
    cwd: text.optional(),
  }),
  z.strictObject({
    type: z.enum(["http", "streamable-http", "sse", "ws"]).optional(),
    url: z.url(),
    headers: texts.optional(),
  }),
]);
const commonForm = z.strictObject({ mcpServers: z.record(text.max(128), commonServer), ...shared });

export interface McpConfig extends z.output<typeof ownForm> {
  /** Returns the path of a field in the file. `field`: its path in troupe's own form. */
  readonly fieldOf: FieldOf;
}

type FieldOf = (field: readonly PropertyKey[]) => readonly PropertyKey[];

export type McpServerConfig = McpConfig["servers"][number];

function withoutUser(): [check: (url: string) => boolean, message: string] {
  const message = "expects a URL without a user name and password; use headers or bearer_token";
  return [(url) => URL.canParse(url) && new URL(url).username === "" && new URL(url).password === "", message];
}

/** Reads the file. Throws config_invalid with a message that names the wrong field. */
export async function readMcpConfig(path: string): Promise<McpConfig> {
  const given = parsed(await contentOf(path), path);
  if (typeof given === "object" && given !== null && "mcpServers" in given) {
    const { mcpServers, ...rest } = checked(commonForm, given, path);
    const names = Object.keys(mcpServers);
    const servers = Object.entries(mcpServers).map(([name, one]) => ({ name, source: sourceOf(one) }));
    const fieldOf: FieldOf = (field) => commonField(field, names);
    return { ...checked(ownForm, { servers, ...rest }, path, fieldOf), fieldOf };
  }
  return { ...checked(ownForm, given, path), fieldOf: sameField };
}

/** Returns an error about the file. `field`: path of the field in the file; "" for the whole file. */
export function mcpConfigError(path: string, field: string, problem: string): ServerError {
  const where = field === "" ? `mcp_config "${path}"` : `mcp_config "${path}": ${field}`;
  return new ServerError("config_invalid", `${where} ${problem}`, { param: "mcp_config" });
}

const sameField: FieldOf = (field) => field;

/** Converts the path of a field in troupe's own form to its path in the form `mcpServers`. */
function commonField(field: readonly PropertyKey[], names: readonly string[]): readonly PropertyKey[] {
  const [list, index, ...rest] = field;
  if (list !== "servers" || typeof index !== "number") return field;
  const inServer = rest[0] === "source" ? rest.slice(1) : rest;
  return ["mcpServers", names[index] ?? index, ...inServer.map((name) => (name === "work_dir" ? "cwd" : name))];
}

function sourceOf(one: z.output<typeof commonServer>): unknown {
  if ("command" in one) {
    const { command, args, env, cwd } = one;
    return { type: "Process", command, args, env, work_dir: cwd };
  }
  const { url, headers, type } = one;
  const isSocket = type === "ws" || /^wss?:/.test(url);
  return { type: isSocket ? "WebSocket" : type === "sse" ? "Sse" : "Http", url, headers };
}

async function contentOf(path: string): Promise<string> {
  try {
    const file = await open(path);
    try {
      const { size } = await file.stat();
      if (size > MAX_FILE_BYTES) throw new Error(`it has ${size} bytes; at most ${MAX_FILE_BYTES} are allowed`);
      return await file.readFile("utf8");
    } finally {
      await file.close();
    }
  } catch (error) {
    throw mcpConfigError(path, "", `cannot be read: ${(error as Error).message}`);
  }
}

function parsed(content: string, path: string): unknown {
  try {
    return JSON.parse(content);
  } catch {
    // The parser's message is not shown, because it quotes the file, which may contain secrets.
    throw mcpConfigError(path, "", "expects JSON; got text that is not JSON");
  }
}

/**
 * Checks `given` against the schema. `fieldOf` converts the path of a field in `given` to its path in the file; by default, the
 * paths are equal.
 */
function checked<T>(schema: z.ZodType<T>, given: unknown, path: string, fieldOf = sameField): T {
  const result = schema.safeParse(given);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  if (issue === undefined) throw mcpConfigError(path, "", "is not valid");
  const field = fieldOf(issue.path).map(String).join(".");
  const problem =
    issue.code === "invalid_union"
      ? "expects {command, args, env, cwd} or {url, headers, type}"
      : `is wrong: ${issue.message}`;
  throw mcpConfigError(path, field, problem);
}
