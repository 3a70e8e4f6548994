// Discovery: finds out which dialect an upstream uses, and its model's name, sizes and context length.

import { greedySampling } from "../generation.ts";
import { completions } from "./completions.ts";
import { parsed, type UpstreamConnection } from "./connection.ts";
import { count, garbage, type JsonRecord, list, record, tokenId } from "./json-shape.ts";
import { llamaServer } from "./llama-server.ts";
import type { SplitCharacters } from "./split-characters.ts";
import { type Dialect, UpstreamFailure, type UpstreamModel, type UpstreamRequest } from "./upstream.ts";

export interface Found {
  readonly dialect: Dialect;
  readonly model: UpstreamModel;
}

export interface Wanted {
  /** Name of the wanted model; null = the first model that the upstream lists. */
  readonly model: string | null;
  readonly splits: SplitCharacters;
  readonly timeoutMs: number;
}

/** Finds the wanted model on an upstream, and the upstream's dialect. Rejects with UpstreamFailure. */
export async function discover(connection: UpstreamConnection, wanted: Wanted): Promise<Found> {
  const { timeoutMs, splits } = wanted;
  const listed = record(await connection.json("GET", "/v1/models", null, timeoutMs), "the list of models");
  const entry = modelIn(listed, wanted.model);
  const meta = typeof entry.meta === "object" && entry.meta !== null ? (entry.meta as JsonRecord) : {};
  const name = String(entry.id);
  const facts = {
    name,
    vocabSize: count(meta.n_vocab),
    trainedContext: count(meta.n_ctx_train),
    parameterCount: count(meta.n_params) ?? count(entry.parameter_count) ?? 0,
    weightBytes: count(meta.size) ?? count(entry.weight_bytes) ?? 0,
  };
  if (entry.owned_by === "llamacpp") {
    const { slots, contextTokens } = await llamaSlots(connection, timeoutMs);
    return { dialect: llamaServer(splits), model: { ...facts, slots, contextTokens } };
  }
  const contextTokens = count(entry.max_model_len);
  if (contextTokens === null) {
    if (entry.status === "reloading") throw new UpstreamFailure("failed", `model "${name}" is being loaded there`);
    throw garbage(`max_model_len of model "${name}" in GET /v1/models, as vLLM, SGLang and troupe send it`, entry);
  }
  // troupe lists its models with the owner "local".
  const isTroupe = entry.owned_by === "local";
  const dialect = completions({ grammar: isTroupe ? "gbnf" : "ebnf", hasDry: isTroupe });
  return { dialect, model: { ...facts, slots: null, contextTokens } };
}

function modelIn(listed: JsonRecord, wanted: string | null): JsonRecord {
  const entries = list(listed.data, "data").map((entry) => record(entry, "a model"));
  const found = wanted === null ? entries[0] : entries.find(({ id }) => id === wanted);
  if (found !== undefined) return found;
  const names = entries.map(({ id }) => String(id)).join(", ");
  throw new UpstreamFailure(
    "refused",
    `expected a model ${wanted === null ? "" : `"${wanted}" `}there (remote_model); got ${names || "none"}`,
  );
}

async function llamaSlots(connection: UpstreamConnection, timeoutMs: number) {
  const props = record(await connection.json("GET", "/props", null, timeoutMs), "/props");
  const settings = record(props.default_generation_settings, "default_generation_settings");
  const contextTokens = count(settings.n_ctx);
  if (contextTokens === null) throw garbage("n_ctx in /props", settings.n_ctx);
  return { contextTokens, slots: count(props.total_slots) };
}

const probe = {
  maxTokens: 2,
  minTokens: 0,
  ignoreEos: true,
  stopTokens: [],
  sampling: greedySampling,
  seed: null,
  grammar: null,
} satisfies Partial<UpstreamRequest>;

/**
 * Checks that an upstream returns token ids: requests up to two tokens. Rejects with UpstreamFailure "refused" if there are no token ids in
 * the response.
 */
export async function checkTokens(
  connection: UpstreamConnection,
  { dialect, model }: Found,
  token: number,
  timeoutMs: number,
): Promise<void> {
  const request = { ...probe, model: model.name, prompt: [token] };
  const reader = dialect.reader(request);
  let tokens = 0;
  let timer: NodeJS.Timeout | undefined;
  await new Promise<void>((resolve, reject) => {
    const sink = {
      onEvent: (data: string) => {
        if (data !== "[DONE]") tokens += reader.read(parsed(data)).tokens.length;
      },
      onEnd: resolve,
      onFailure: reject,
    };
    const stream = connection.stream(dialect.path, dialect.body(request), sink);
    const late = new UpstreamFailure("timeout", `no token within ${timeoutMs / 1000} s (first_token_timeout_secs)`);
    timer = setTimeout(() => {
      stream.close();
      reject(late);
    }, timeoutMs);
  }).finally(() => clearTimeout(timer));
  if (tokens > 0) return;
  const who = "as vLLM 0.10.2 or newer, llama-server and troupe send them";
  throw new UpstreamFailure(
    "refused",
    `expected token ids in a stream of completions (return_token_ids), ${who}; got none`,
  );
}

/**
 * Tokenizes texts with the upstream's tokenizer; null if the requests to POST /tokenize fail, for example because the path does not exist.
 * Rejects with UpstreamFailure if a response has an unexpected shape.
 */
export async function tokenized(
  connection: UpstreamConnection,
  { dialect, model }: Found,
  texts: readonly string[],
  timeoutMs: number,
): Promise<Int32Array[] | null> {
  try {
    return await Promise.all(
      texts.map(async (text) => {
        const sent = await connection.json("POST", "/tokenize", dialect.tokenizeBody(model.name, text), timeoutMs);
        return Int32Array.from(list(record(sent, "tokens").tokens, "tokens").map(tokenId));
      }),
    );
  } catch (error) {
    if (error instanceof UpstreamFailure && error.kind !== "garbage") return null;
    throw error;
  }
}

/** Returns the embeddings of prompts, concatenated in the order of the prompts. Rejects with UpstreamFailure. */
export async function embedded(
  connection: UpstreamConnection,
  model: string,
  prompts: readonly Int32Array[],
  { timeoutMs, signal }: { readonly timeoutMs: number; readonly signal?: AbortSignal },
): Promise<Float32Array> {
  const input = prompts.map((prompt) => [...prompt]);
  const body = JSON.stringify({ model, input, encoding_format: "base64" });
  const sent = record(await connection.json("POST", "/v1/embeddings", body, timeoutMs, signal), "embeddings");
  const entries = list(sent.data, "data").map((entry) => record(entry, "an embedding"));
  if (entries.length !== prompts.length) throw garbage(`${prompts.length} embeddings`, entries.length);
  const vectors = entries
    .toSorted((a, b) => Number(a.index) - Number(b.index))
    .map(({ embedding }) => vectorOf(embedding));
  const length = vectors[0]?.length ?? 0;
  if (vectors.some((vector) => vector.length !== length)) throw garbage("embeddings of equal lengths", null);
  const all = new Float32Array(length * vectors.length);
  for (const [i, vector] of vectors.entries()) all.set(vector, i * length);
  return all;
}

function vectorOf(embedding: unknown): ArrayLike<number> {
  if (typeof embedding !== "string") return list(embedding, "an embedding").map(Number);
  const bytes = Buffer.from(embedding, "base64");
  return new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
}
