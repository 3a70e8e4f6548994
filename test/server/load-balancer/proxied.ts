// Failover scenario: three servers of the real command share one Redis behind a proxy. While clients read streams from each
// server, one server is killed, one is stopped, and Redis is restarted. Returns what the clients observed. Used by a test and by
// `bench replicas`.
import assert from "node:assert/strict";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { type ProxyName, type RunningProxy, startProxy } from "../../fixtures/proxy/proxy.ts";
import { type RunningServer, startServer } from "../../fixtures/serve.ts";
import { type RedisServer, startRedis } from "../../fixtures/store/redis.ts";
import { Follower, jsonBody, type StreamEvent } from "../replicas/rig.ts";

export interface ProxiedOptions {
  readonly proxy: ProxyName;
  readonly model: string;
  /** Number of streams on each server. Every fourth is a chat completion, the others are background responses. */
  readonly streams: number;
  /** Number of tokens of each stream. */
  readonly tokens: number;
  /** Whether Redis restarts before or after one server is killed and another is stopped. */
  readonly redis: "before" | "after";
}

const LEASE_SECS = 2;
/** Number of clients that send short requests, all of which must succeed. PROBE_MS: pause of each client between requests, in ms. */
const PROBE_LANES = 4;
const PROBE_MS = 250;
/** Maximum time in ms to repeat a request that fails for a temporary reason. */
const SETTLE_MS = 20_000;
const AFFINITY = "x-session-affinity";
const roles = ["killed", "drained", "kept"] as const;
type Role = (typeof roles)[number];

/** What the clients of one server observed. */
interface Counts {
  streams: number;
  /** Number of streams that delivered all their events, including the last. */
  whole: number;
  /** Number of streams whose connection closed early. */
  cut: number;
  /** Number of cut responses that, read again from the last received event, ended with a retryable error. */
  interrupted: number;
  /** Number of stored responses that a server returns with the correct state. */
  readable: number;
  events: number;
  lost: number;
  doubled: number;
}

export interface ProxiedResult {
  readonly counts: Readonly<Record<Role, Counts>>;
  /** Number of short requests sent through the proxy during the scenario. `failedProbes`: those that failed. */
  readonly probes: number;
  readonly failedProbes: readonly string[];
  /** Time in seconds from stopping a server until its process exits. */
  readonly drainSecs: number;
  /** Exit code of the stopped server. */
  readonly drainCode: number | null;
  /** Number of cut streams by the error that the client got. */
  readonly cuts: ReadonlyMap<string, number>;
}

interface Stream {
  readonly role: Role;
  readonly isChat: boolean;
  readonly follower: Follower;
  readonly id: string;
}

interface Rig {
  readonly redis: RedisServer;
  readonly servers: readonly RunningServer[];
  readonly proxy: RunningProxy;
}

export async function runProxied(options: ProxiedOptions): Promise<ProxiedResult> {
  const { model, streams } = options;
  const redis = await startRedis({ aof: true });
  // HAProxy and Envoy send a replica up to 1.5 times its share (deploy/).
  const slots = Math.ceil(1.5 * streams) + 2;
  const flags = ["-m", model, "--threads", "1", "--max-seqs", String(slots), "--max-model-len", "512"];
  const more = [
    "--disable-access-log",
    "--lease-secs",
    String(LEASE_SECS),
    "--shutdown-delay-secs",
    "5",
    "--shutdown-deadline-secs",
    "300",
  ];
  const environment = { TROUPE_STATE_URL: redis.url };
  // The alias shows which server has responded.
  const servers = await Promise.all(
    roles.map((role) => startServer([...flags, ...more, "--alias", role], environment)),
  );
  const proxy = await startProxy(options.proxy, servers.map(portOf));
  try {
    return await scenario({ redis, servers, proxy }, options);
  } catch (error) {
    console.error(`${options.proxy}: ${proxy.output()}`);
    throw error;
  } finally {
    for (const { process: child } of servers) child.kill("SIGKILL");
    await proxy.stop();
    await redis.stop();
  }
}

async function scenario({ redis, servers, proxy }: Rig, options: ProxiedOptions): Promise<ProxiedResult> {
  const [killed, drained] = servers as [RunningServer, RunningServer];
  const keys = await keysOf(proxy.url, options.streams);
  const streams = await openStreams(proxy.url, keys, options);
  const probes = startProbes(proxy.url);
  const restartRedis = async (): Promise<void> => {
    await redis.kill();
    await sleep(1000);
    await redis.start();
    // Replicas reconnect within 2 s.
    await sleep(2500);
  };
  if (options.redis === "before") await restartRedis();
  for (const { follower, role } of streams) {
    if (role !== "kept")
      assert.ok(!follower.hasEnded, `a stream of the ${role} server ended too early; use more tokens`);
  }
  const drainedAt = performance.now();
  const drainEnd = once(drained.process, "exit").then(([code]) => ({
    code: code as number | null,
    secs: (performance.now() - drainedAt) / 1000,
  }));
  killed.process.kill("SIGKILL");
  drained.process.kill("SIGTERM");
  if (options.redis === "after") await restartRedis();
  const counts = { killed: emptyCounts(), drained: emptyCounts(), kept: emptyCounts() };
  const cuts = new Map<string, number>();
  await Promise.all(streams.map((stream) => judge(proxy.url, stream, options, counts[stream.role], cuts)));
  const { code, secs } = await drainEnd;
  const { count, failures } = await probes.stop();
  return { counts, probes: count, failedProbes: failures, drainSecs: secs, drainCode: code, cuts };
}

const portOf = ({ url }: RunningServer): number => Number(new URL(url).port);

/** Finds values of the affinity header that the proxy sends to each server: `each` values per server. */
async function keysOf(url: string, each: number): Promise<Map<Role, string[]>> {
  const found = new Map<Role, string[]>(roles.map((role) => [role, []]));
  for (let i = 0; [...found.values()].some((keys) => keys.length < each); i++) {
    assert.ok(i < 100 * each, "the proxy does not spread the values of the header");
    const key = `conversation-${i}`;
    const reply = await fetch(`${url}/v1/models`, { headers: { [AFFINITY]: key } });
    assert.equal(reply.headers.get(AFFINITY), key, "the response has the header of the request");
    const text = await reply.text();
    const role = roles.find((name) => text.includes(`"${name}"`));
    assert.ok(role !== undefined, text);
    const keys = found.get(role) ?? [];
    if (keys.length < each) keys.push(key);
  }
  return found;
}

/** Opens all streams and waits until each has started. */
async function openStreams(
  url: string,
  keys: ReadonlyMap<Role, readonly string[]>,
  { tokens }: ProxiedOptions,
): Promise<readonly Stream[]> {
  const opened = [...keys.values()].flatMap((values) => values.map((key, i) => open(url, key, i, tokens)));
  return await Promise.all(opened);
}

/** Opens a stream. Its server may be another one than that of its header's value, if that one has more than its share. */
async function open(url: string, key: string, i: number, tokens: number): Promise<Stream> {
  const isChat = i % 4 === 3;
  const content = `Count from ${i} upwards.`;
  const common = { stream: true, ignore_eos: true, temperature: 0 };
  const [path, body] = isChat
    ? ["chat/completions", { messages: [{ role: "user", content }], max_tokens: tokens, ...common }]
    : ["responses", { input: content, background: true, max_output_tokens: tokens, ...common }];
  const init = jsonBody(body as object);
  const follower = new Follower(`${url}/v1/${path}`, { ...init, headers: { ...init.headers, [AFFINITY]: key } });
  const first = await follower.first((event) => chatText(event) !== "" || event.delta !== undefined);
  const [begun] = follower.events;
  const model = begun?.response?.model ?? begun?.model;
  const role = roles.find((name) => name === model);
  assert.ok(first !== undefined && role !== undefined, `a stream did not begin: ${JSON.stringify(follower.events)}`);
  return { role, isChat, follower, id: begun?.response?.id ?? "" };
}

/** Returns the text in a chunk of a chat completion. */
function chatText(event: StreamEvent): string {
  const { choices } = event as unknown as { choices?: readonly { delta?: { content?: string } }[] };
  return choices?.[0]?.delta?.content ?? "";
}

/** Waits for the end of a stream and counts what its client observed. */
async function judge(
  url: string,
  { isChat, follower, id }: Stream,
  options: ProxiedOptions,
  counts: Counts,
  cuts: Map<string, number>,
): Promise<void> {
  counts.streams++;
  let cut = "";
  const isDone = await follower.ended.catch((error: Error) => {
    cut = `${error.message}${error.cause instanceof Error ? `: ${error.cause.message}` : ""}`;
    return false;
  });
  counts.events += follower.events.length;
  if (!isDone) {
    counts.cut++;
    const what = cut === "" ? "end without [DONE]" : cut;
    cuts.set(what, (cuts.get(what) ?? 0) + 1);
  }
  if (isChat) {
    const { choices } = (follower.events.at(-1) ?? {}) as { choices?: readonly { finish_reason?: string }[] };
    if (isDone && choices?.[0]?.finish_reason === "length") counts.whole++;
    return;
  }
  const events = [...follower.events];
  if (!isDone) {
    // The client resumes after the last event that it has received.
    const after = events.at(-1)?.sequence_number ?? -1;
    const next = `${url}/v1/responses/${id}?stream=true&starting_after=${after}`;
    const { error } = await settled(next);
    let code = error?.code;
    if (error == null) {
      const again = new Follower(next);
      await again.ended;
      events.push(...again.events);
      code = events.at(-1)?.code;
    }
    if (code === "peer_gone") counts.interrupted++;
  } else if (events.at(-1)?.type === "response.completed" || events.at(-1)?.response?.status === "incomplete") {
    counts.whole++;
  }
  const numbers = events.map(({ sequence_number }) => sequence_number);
  counts.doubled += numbers.length - new Set(numbers).size;
  counts.lost += Math.max(-1, ...numbers) + 1 - new Set(numbers).size;
  const shown = await settled(`${url}/v1/responses/${id}`);
  const text = events.map(({ type, delta }) => (type === "response.output_text.delta" ? (delta ?? "") : "")).join("");
  const shownText = shown.output?.flatMap(({ content }) => content?.map((part) => part.text ?? "") ?? []).join("");
  const isRight = isDone
    ? shownText === text && shown.usage?.output_tokens === options.tokens
    : shown.status === "incomplete";
  if (shown.id === id && isRight) counts.readable++;
}

/**
 * Repeats a request until it no longer fails because the proxy or Redis is unavailable. Returns the JSON body of the response; {} for
 * a stream.
 */
async function settled(url: string): Promise<Shown> {
  const limit = performance.now() + SETTLE_MS;
  for (;;) {
    const reply = await fetch(url);
    const type = reply.headers.get("content-type") ?? "";
    if (type.includes("event-stream")) {
      await reply.body?.cancel();
      return {};
    }
    const text = await reply.text();
    const shown = type.includes("json") ? (JSON.parse(text) as Shown) : null;
    if (shown !== null && shown.error?.code !== "storage_unavailable") return shown;
    assert.ok(performance.now() < limit, `${reply.status}: ${text}`);
    await sleep(200);
  }
}

interface Shown {
  readonly error?: { readonly code?: string } | null;
  readonly id?: string;
  readonly status?: string;
  readonly usage?: { readonly output_tokens: number };
  readonly output?: readonly { readonly content?: readonly { readonly text?: string }[] }[];
}

function emptyCounts(): Counts {
  return { streams: 0, whole: 0, cut: 0, interrupted: 0, readable: 0, events: 0, lost: 0, doubled: 0 };
}

/** Sends short requests, each with a different affinity key, until `stop` is called. Only a few run at once, so that they fill no queue. */
function startProbes(url: string): { stop(): Promise<{ count: number; failures: string[] }> } {
  const failures: string[] = [];
  let count = 0;
  let isOver = false;
  const lane = async (): Promise<void> => {
    while (!isOver) {
      const init = jsonBody({ messages: [{ role: "user", content: `Number ${count}?` }], max_tokens: 1 });
      const headers = { ...init.headers, [AFFINITY]: `probe-${count++}` };
      const failure = await fetch(`${url}/v1/chat/completions`, { ...init, headers }).then(
        async (reply) => (reply.status === 200 ? null : `${reply.status} ${await reply.text()}`),
        (error: Error) => `${error.message}: ${String(error.cause)}`,
      );
      if (failure !== null) failures.push(failure);
      await sleep(PROBE_MS);
    }
  };
  const lanes = Array.from({ length: PROBE_LANES }, lane);
  return {
    stop: async () => {
      isOver = true;
      await Promise.all(lanes);
      return { count, failures };
    },
  };
}
