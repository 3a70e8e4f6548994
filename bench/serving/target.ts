// Server as the load generator uses it: address, model, and the bytes of a request.
import { ServerError } from "../../runtime/errors.ts";
import type { LoopDelay } from "../loop-delay.ts";

const endpointNames = ["chat", "responses", "messages", "completions", "embeddings"] as const;
export type EndpointName = (typeof endpointNames)[number];

/** Returns the endpoint of this name. Throws config_invalid if there is none. */
export function endpointNamed(name: string): EndpointName {
  const known = endpointNames.find((endpoint) => endpoint === name);
  if (known !== undefined) return known;
  throw new ServerError("config_invalid", `--endpoint expects ${endpointNames.join(", ")}; got "${name}"`);
}

export interface Target {
  readonly label: string;
  readonly url: URL;
  readonly model: string;
  readonly apiKey: string | null;
  /** Process ids whose memory, including their children's, counts as the server's; empty if unknown. */
  readonly pids: readonly number[];
  /** Returns the event loop delays since the last call; null if they are not measured. */
  readonly takeLoopDelay: (() => Promise<LoopDelay>) | null;
}

/** Fields that every request of a run has in common. */
export interface Ask {
  readonly endpoint: EndpointName;
  readonly maxTokens: number;
  readonly temperature: number;
  readonly ignoreEos: boolean;
}

export interface TargetOptions extends Pick<Target, "apiKey" | "pids" | "takeLoopDelay"> {
  readonly url: string;
  /** Model name; null asks the server for it. */
  readonly model: string | null;
}

/** Creates a target. Asks the server for its model unless one is named. */
export async function createTarget(label: string, options: TargetOptions): Promise<Target> {
  const url = new URL(options.url.replace(/\/(v1\/?)?$/, ""));
  const { apiKey, pids, takeLoopDelay } = options;
  const model = options.model ?? (await firstModel(url, apiKey));
  return { label, url, model, apiKey, pids, takeLoopDelay };
}

async function firstModel(url: URL, apiKey: string | null): Promise<string> {
  const address = pathOf(url, "models");
  const headers = apiKey === null ? {} : { authorization: `Bearer ${apiKey}` };
  const response = await fetch(new URL(address, url), { headers }).catch((cause: unknown) => {
    throw new ServerError("config_invalid", `${url.origin} does not answer; is the server up?`, { cause });
  });
  const body = (await response.json().catch(() => null)) as { data?: { id?: string }[] } | null;
  const id = body?.data?.[0]?.id;
  if (id) return id;
  throw new ServerError(
    "config_invalid",
    `${url.origin}${address} names no model (status ${response.status}); use --model`,
  );
}

/** Returns the bytes of one whole HTTP request. */
export function requestBytes({ url, model, apiKey }: Target, ask: Ask, prompt: string): Buffer {
  const { path, fields } = endpoints[ask.endpoint];
  const sampling = { temperature: ask.temperature, ...(ask.ignoreEos ? { ignore_eos: true } : {}) };
  const common = { model, ...(ask.endpoint === "embeddings" ? {} : sampling) };
  return postBytes(url, path, JSON.stringify({ ...common, ...fields(prompt, ask.maxTokens) }), apiKey);
}

/**
 * Request format of each endpoint: where the prompt and the token limit go, and whether it can stream. Embeddings have no
 * token limit.
 */
const endpoints: Readonly<Record<EndpointName, Endpoint>> = {
  chat: {
    path: "chat/completions",
    fields: (content, max_tokens) => {
      const stream = { stream: true, stream_options: { include_usage: true } };
      return { messages: [{ role: "user", content }], ...stream, max_tokens };
    },
  },
  completions: { path: "completions", fields: (prompt, max_tokens) => ({ prompt, max_tokens }) },
  embeddings: { path: "embeddings", fields: (input) => ({ input }) },
  responses: {
    path: "responses",
    fields: (input, max_output_tokens) => ({ input, stream: true, store: false, max_output_tokens }),
  },
  messages: {
    path: "messages",
    fields: (content, max_tokens) => ({ messages: [{ role: "user", content }], stream: true, max_tokens }),
  },
};

interface Endpoint {
  readonly path: string;
  readonly fields: (prompt: string, maxTokens: number) => object;
}

/** Returns the bytes of one whole HTTP request that posts JSON to `/v1/NAME`. */
export function postBytes(url: URL, name: string, body: string, apiKey: string | null): Buffer {
  const head = [
    `POST ${pathOf(url, name)} HTTP/1.1`,
    `host: ${url.host}`,
    "content-type: application/json",
    `content-length: ${Buffer.byteLength(body)}`,
    ...(apiKey === null ? [] : [`authorization: Bearer ${apiKey}`]),
  ];
  return Buffer.from(`${head.join("\r\n")}\r\n\r\n${body}`);
}

function pathOf(url: URL, name: string): string {
  return `${url.pathname.replace(/\/$/, "")}/v1/${name}`;
}
