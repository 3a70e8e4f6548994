// Attacking client: sends well-formed HTTP requests with bodies and headers of any size, and summarizes the responses.
// raw-client.ts sends malformed requests.
import { request } from "node:http";
import { performance } from "node:perf_hooks";

/** Maximum bytes kept of a response. */
const keptBytes = 256 * 1024;

/** API key of the attackers. The server distinguishes clients by keys of at least 20 characters. */
export const attackerKey = "attacker-0123456789abcdef";
export const otherKey = "bystander-0123456789abcdef";

export interface Reply {
  /** HTTP status; 0 if there was no response. */
  readonly status: number;
  /** Error code of the response; null if there is none. */
  readonly code: string | null;
  readonly retryAfter: string | null;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly ms: number;
  readonly text: string;
  readonly byteLength: number;
  /** Why there was no complete response; null if it was complete. */
  readonly failure: string | null;
}

export interface SendOptions {
  readonly key?: string;
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Disconnects the client when aborted. */
  readonly signal?: AbortSignal;
}

/** Posts an object as JSON, or a string unchanged. Never rejects. */
export function post(base: string, path: string, body: object | string, options: SendOptions = {}): Promise<Reply> {
  const bytes = Buffer.isBuffer(body) ? body : Buffer.from(typeof body === "string" ? body : JSON.stringify(body));
  const headers = { "content-type": "application/json", ...options.headers };
  return send(new URL(path, base), { ...options, method: options.method ?? "POST", headers }, bytes);
}

/** Sends a GET request. Never rejects. */
export function get(base: string, path: string, options: SendOptions = {}): Promise<Reply> {
  return send(new URL(path, base), { ...options, method: options.method ?? "GET" }, null);
}

function send(url: URL, { key = attackerKey, ...options }: SendOptions, body: Buffer | null): Promise<Reply> {
  const startMs = performance.now();
  const headers = {
    authorization: `Bearer ${key}`,
    ...(body === null ? {} : { "content-length": body.length }),
    ...options.headers,
  };
  return new Promise((resolve) => {
    let status = 0;
    let answered: Reply["headers"] = {};
    let byteLength = 0;
    let keptLength = 0;
    const kept: Buffer[] = [];
    const done = (failure: string | null): void => {
      const text = Buffer.concat(kept).toString();
      const retryAfter = answered["retry-after"]?.toString() ?? null;
      const ms = performance.now() - startMs;
      resolve({ status, code: codeIn(text), retryAfter, headers: answered, ms, text, byteLength, failure });
    };
    const { method = "GET", signal } = options;
    const sent = request(url, { method, headers, agent: false, ...(signal && { signal }) }, (response) => {
      status = response.statusCode ?? 0;
      answered = response.headers;
      response.on("data", (data: Buffer) => {
        byteLength += data.length;
        if (keptLength >= keptBytes) return;
        kept.push(data);
        keptLength += data.length;
      });
      response.on("end", () => done(null));
      response.on("error", (error) => done(nameOf(error)));
    });
    sent.on("error", (error) => done(nameOf(error)));
    sent.end(body ?? undefined);
  });
}

function codeIn(text: string): string | null {
  const inStream = /"error":\{.*?"code":"(\w+)"/s.exec(text)?.[1];
  return inStream ?? null;
}

function nameOf(error: NodeJS.ErrnoException): string {
  return error.name === "AbortError" ? "hung up" : (error.code ?? error.message);
}

/** Returns whether a reply is a success or an error with a code. A broken connection or an internal error is neither. */
export function isNamed({ status, code, failure }: Reply): boolean {
  if (failure !== null || status === 0) return false;
  return status < 400 ? code === null || isExpected(code) : code !== null && isExpected(code);
}

function isExpected(code: string): boolean {
  return code !== "internal" && code !== "peer_gone";
}

/** Summarizes replies, such as "3 x 200, 1 x 422 unsupported, up to 4.1 s". */
export function summary(replies: readonly Reply[]): string {
  const counts = new Map<string, number>();
  for (const { status, code, failure } of replies) {
    const name =
      failure !== null ? `${failure}${status > 0 ? ` after ${status}` : ""}` : `${status}${code ? ` ${code}` : ""}`;
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  const all = [...counts].map(([name, count]) => (replies.length === 1 ? name : `${count} x ${name}`)).join(", ");
  return `${all}, ${replies.length === 1 ? "" : "up to "}${seconds(Math.max(0, ...replies.map(({ ms }) => ms)))}`;
}

export function seconds(ms: number): string {
  return ms < 1000 ? `${ms.toFixed(0)} ms` : `${(ms / 1000).toFixed(1)} s`;
}
