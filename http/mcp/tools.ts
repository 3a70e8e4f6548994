// Owns the tools the models are offered as: what each is called, takes and answers. A tool is a route of the app under
// another name: its input schema is the one the route reads its body with, and a call of it is a request of that route.
import assert from "node:assert/strict";
import type { CallToolResult, Tool } from "@modelcontextprotocol/server";
import { z } from "zod";
import type { Inference, ModelCapabilities } from "../../actors/api/inference.ts";
import type { App } from "../app.ts";
import { routes } from "../routes.ts";
import { ChatFold, type OnProgress } from "./chat-fold.ts";
import { dispatch, type InnerReply, type InnerRequest } from "./dispatch.ts";

export type Arguments = Readonly<Record<string, unknown>>;

/** One call of a tool: who asks, until when, and whom to tell how far it is. */
export interface Call extends Omit<InnerRequest, "path" | "body" | "onPiece"> {
  readonly arguments: Arguments;
  readonly onProgress: OnProgress | null;
}

interface OfferedTool {
  readonly listed: Tool;
  /** Whether a model can do it; one that was never loaded is not known. */
  isOffered(capabilities: ModelCapabilities | null): boolean;
  run(app: App, call: Call): Promise<CallToolResult>;
}

const CHAT_PATH = "/v1/chat/completions";
const EMBEDDINGS_PATH = "/v1/embeddings";
/** Of the chat's route: whether tools of the server may be used. */
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
        description: "Turn texts into vectors whose distances tell how alike they are in meaning",
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

/** The tools of the models that are served now. */
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

  /** null where there is no such tool. */
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

/** The schema of a route's body, without what a call has no use for: it has a stream of its own. */
function inputSchema(path: string): Tool["inputSchema"] {
  const body = routes.find((route) => route.path === path)?.operation?.body;
  assert(body !== undefined, `POST ${path} describes its body`);
  const schema = pruned(z.toJSONSchema(body, { io: "input", unrepresentable: "any" })) as Tool["inputSchema"];
  const { stream: _, stream_options: __, ...properties } = schema.properties ?? {};
  return { ...schema, type: "object", properties };
}

/** Without "ask": an answer to that would be due in a stream that a caller does not see. */
function chatInput(): Tool["inputSchema"] {
  const schema = inputSchema(CHAT_PATH);
  const permissions = permissionFields.map((field) => [field, { type: "string", enum: ["auto", "deny"] }]);
  return { ...schema, properties: { ...schema.properties, ...Object.fromEntries(permissions) } };
}

/** A schema without what is refused or changes nothing: that would only lead a caller astray. */
function pruned(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.filter(isUseful).map(pruned);
  if (typeof schema !== "object" || schema === null) return schema;
  return Object.fromEntries(
    Object.entries(schema).flatMap(([name, inner]) => (isUseful(inner) ? [[name, pruned(inner)]] : [])),
  );
}

function isUseful(schema: unknown): boolean {
  const support = (schema as { readonly support?: unknown } | null)?.support;
  return support !== "refused" && support !== "ignored";
}

/** Asked for as a stream, so that there is progress to tell. */
async function chat(app: App, { arguments: given, onProgress, ...asked }: Call): Promise<CallToolResult> {
  const asking = permissionFields.find((field) => given[field] === "ask");
  if (asking !== undefined)
    return failed(`${asking}: expected "auto" or "deny", as nobody can be asked here; got "ask"`);
  const fold = new ChatFold(onProgress);
  const body = { ...given, stream: true, stream_options: { include_usage: true } };
  const reply = await dispatch(app, { ...asked, path: CHAT_PATH, body, onPiece: (piece) => fold.push(piece) });
  return reply.status === 200 ? fold.result() : failure(reply);
}

async function embed(app: App, { arguments: body, onProgress: _, ...asked }: Call): Promise<CallToolResult> {
  const reply = await dispatch(app, { ...asked, path: EMBEDDINGS_PATH, body });
  if (reply.status !== 200) return failure(reply);
  // As text too, for clients that know of nothing else.
  return { content: [{ type: "text", text: reply.body }], structuredContent: JSON.parse(reply.body) as Arguments };
}

/** The caller is a model more often than not, and can do something about what it is told. */
function failure({ body }: InnerReply): CallToolResult {
  const { error } = JSON.parse(body) as { readonly error: { readonly message: string } };
  return failed(error.message);
}

function failed(text: string): CallToolResult {
  return { content: [{ type: "text", text }], isError: true };
}
