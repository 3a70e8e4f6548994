// Tools: the models as MCP tools. Each tool calls one route of the app. The tool's input schema is derived from the
// schema of the route's body, and a tool call becomes a request to the route.
import assert from "node:assert/strict";
import type { CallToolResult, Tool } from "@modelcontextprotocol/server";
import { z } from "zod";
import type { Inference, ModelCapabilities } from "../../actors/api/inference.ts";
import type { App } from "../app.ts";
import { routes } from "../routes.ts";
import { UNKNOWN_FIELDS_HEADER } from "../shared/unknown-fields.ts";
import { chatResult, type OnProgress, progressOf } from "./chat-result.ts";
import { dispatch, type InnerReply, type InnerRequest } from "./dispatch.ts";

export type Arguments = Readonly<Record<string, unknown>>;

/** Arguments and caller of a tool call. */
export interface Call extends Omit<InnerRequest, "path" | "body" | "onEvents"> {
  readonly arguments: Arguments;
  readonly onProgress: OnProgress | null;
}

interface OfferedTool {
  readonly listed: Tool;
  /** Returns whether a model can run this tool. `capabilities` is null if the model was never loaded. */
  isOffered(capabilities: ModelCapabilities | null): boolean;
  run(app: App, call: Call): Promise<CallToolResult>;
}

const CHAT_PATH = "/v1/chat/completions";
const EMBEDDINGS_PATH = "/v1/embeddings";
/** Fields of the chat route that decide whether tools of the server may be used. */
const permissionFields = ["agent_permission", "code_execution_permission"];

function offeredTools(): readonly OfferedTool[] {
  return [
    {
      listed: {
        name: "chat",
        title: "Chat with the model",
        description: "Have the language model of this server answer a conversation",
        inputSchema: chatInput(),
      },
      isOffered: (capabilities) => capabilities?.generates ?? true,
      run: chat,
    },
    {
      listed: {
        name: "embed",
        title: "Embed texts",
        description: "Turn texts into vectors whose distance measures how similar their meanings are",
        inputSchema: inputSchema(EMBEDDINGS_PATH),
      },
      isOffered: (capabilities) => capabilities?.embeds ?? false,
      run: embed,
    },
  ];
}

export interface ToolBoxOptions {
  readonly app: App;
  readonly inference: Inference;
}

export class ToolBox {
  readonly #app: App;
  readonly #inference: Inference;
  readonly #tools = offeredTools();

  constructor({ app, inference }: ToolBoxOptions) {
    this.#app = app;
    this.#inference = inference;
  }

  list(): Tool[] {
    return this.#offered().map(({ listed }) => listed);
  }

  /** Runs a tool. Returns null if there is no tool with this name. */
  call(name: string, call: Call): Promise<CallToolResult> | null {
    return (
      this.#offered()
        .find(({ listed }) => listed.name === name)
        ?.run(this.#app, call) ?? null
    );
  }

  #offered(): readonly OfferedTool[] {
    const models = this.#inference.models();
    return this.#tools.filter((tool) => models.some(({ capabilities }) => tool.isOffered(capabilities)));
  }
}

/** Returns the schema of a route's body without the streaming fields. */
function inputSchema(path: string): Tool["inputSchema"] {
  const body = routes.find((route) => route.path === path)?.operation?.body;
  assert(body !== undefined, `POST ${path} describes its body`);
  const schema = pruned(z.toJSONSchema(body, { io: "input", unrepresentable: "any" })) as Tool["inputSchema"];
  const { stream: _, stream_options: __, ...properties } = schema.properties ?? {};
  return { ...schema, type: "object", properties };
}

/**
 * Returns the input schema of the chat tool. The permission "ask" is removed, because the server would ask for approval in the
 * stream of the chat route, which the caller does not see.
 */
function chatInput(): Tool["inputSchema"] {
  const schema = inputSchema(CHAT_PATH);
  const permissions = permissionFields.map((field) => [field, { type: "string", enum: ["auto", "deny"] }]);
  return { ...schema, properties: { ...schema.properties, ...Object.fromEntries(permissions) } };
}

/**
 * Returns a schema without null types and without the fields that the server rejects or ignores. Callers omit an optional field
 * instead of sending null. MCP inspectors show an input only for a plain type such as `number`.
 */
function pruned(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.filter(isUseful).map(pruned);
  if (typeof schema !== "object" || schema === null) return schema;
  return withoutNull(
    Object.fromEntries(
      Object.entries(schema).flatMap(([name, inner]) => (isUseful(inner) ? [[name, pruned(inner)]] : [])),
    ),
  );
}

/**
 * Returns a schema without the variant null. If `anyOf` then has a single variant, the keywords of this variant replace
 * `anyOf`.
 */
function withoutNull({ anyOf, type, ...rest }: Arguments): object {
  const types = Array.isArray(type) ? type.filter((name) => name !== "null") : [type];
  const typed = type === undefined ? rest : { type: types.length === 1 ? types[0] : types, ...rest };
  if (!Array.isArray(anyOf)) return anyOf === undefined ? typed : { ...typed, anyOf };
  const [only, ...others] = anyOf.filter((variant) => variant.type !== "null");
  return others.length === 0 ? { ...only, ...typed } : { ...typed, anyOf: [only, ...others] };
}

function isUseful(schema: unknown): boolean {
  const support = (schema as { readonly support?: unknown } | null)?.support;
  return support !== "refused" && support !== "ignored";
}

async function chat(app: App, { arguments: given, onProgress, ...asked }: Call): Promise<CallToolResult> {
  const asking = permissionFields.find((field) => given[field] === "ask");
  if (asking !== undefined)
    return failed(`${asking}: expected "auto" or "deny", since MCP has no way to ask; got "ask"`);
  const { stream: _, stream_options: __, ...body } = given;
  const events = onProgress && { onEvents: progressOf(onProgress) };
  const reply = await dispatch(app, { ...asked, ...events, path: CHAT_PATH, body });
  return reply.status === 200 ? withIgnored(chatResult(reply.body), reply) : failure(reply);
}

async function embed(app: App, { arguments: body, onProgress: _, ...asked }: Call): Promise<CallToolResult> {
  const reply = await dispatch(app, { ...asked, path: EMBEDDINGS_PATH, body });
  if (reply.status !== 200) return failure(reply);
  // The result is also sent as text, for clients that ignore structured content.
  const structuredContent = JSON.parse(reply.body) as Arguments;
  return withIgnored({ content: [{ type: "text", text: reply.body }], structuredContent }, reply);
}

/** Adds a list of the unknown arguments to a tool result. */
function withIgnored(result: CallToolResult, { ignored }: InnerReply): CallToolResult {
  return ignored === null ? result : { ...result, _meta: { ...result._meta, [UNKNOWN_FIELDS_HEADER]: ignored } };
}

/**
 * Returns an error as a tool result, not as a protocol error, because the caller is usually a model, which can react to the
 * error message.
 */
function failure({ body }: InnerReply): CallToolResult {
  const { error } = JSON.parse(body) as { readonly error: { readonly message: string } };
  return failed(error.message);
}

function failed(text: string): CallToolResult {
  return { content: [{ type: "text", text }], isError: true };
}
