// Probes of the HTTP server implementations ("edges"): malformed HTTP, idle and slow connections, log output that nothing
// reads, operating system limits.
import { setTimeout as sleep } from "node:timers/promises";
import { ServerError } from "../../../runtime/errors.ts";
import { namedOrClosed, namedReplies, type Outcome, type Probe } from "../probe.ts";
import { otherKey, post, type Reply, seconds, summary } from "../rig/client.ts";
import { tinyModel } from "../rig/models.ts";
import { exchangeRaw, openRaw, type RawReply, statusesIn, trickle } from "../rig/raw-client.ts";
import type { Rig } from "../rig/rig.ts";
import { freePort, type HostileServer } from "../rig/server.ts";

/** Maximum time until the server closes a connection that sends no complete request. */
const slowestMs = 35_000;
const unreadRequests = 2000;
const crowd = 600;
const descriptors = 320;
const crowdMs = 8000;
/** Maximum number of cores that the server may keep busy while no client can connect. */
const idleLoad = 0.2;
const mcpSessions = 1000;
/** Maximum number of characters that the server logs for one request. */
const mostLogged = 4000;

const hiddenRequest = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n";

/** Headers for which HTTP implementations disagree about the body length. */
const ambiguousLengths = [
  "Transfer-Encoding: xchunked",
  "Transfer-Encoding: identity",
  "Transfer-Encoding: chunked, identity",
  "Transfer-Encoding: chunked\r\nContent-Length: 5",
  "Content-Length: 5\r\nTransfer-Encoding: chunked",
  "Transfer-Encoding : chunked",
  "Transfer-Encoding: chunked;q=1",
  "Content-Length: +5",
  "Content-Length: 5, 5",
  "Content-Length: 0x5",
];

export const edgeProbes: readonly Probe[] = [
  { name: "requests hidden in a body", finding: 10, concerns: ["edge"], run: smuggle },
  { name: "connections that rest or crawl", finding: 10, concerns: ["edge"], limitMs: 90_000, run: crawl },
  {
    name: "2,000 requests while nobody reads stderr",
    finding: 12,
    concerns: ["edge"],
    settings: () => ({ hasAccessLog: true }),
    async run(rig) {
      rig.server.stopReading();
      const replies: Reply[] = [];
      for (let sent = 0; sent < unreadRequests; sent += 20) {
        replies.push(...(await Promise.all(Array.from({ length: 20 }, () => rig.get("/v1/models")))));
      }
      return namedReplies(replies);
    },
  },
  {
    name: "long paths in the log",
    finding: 12,
    concerns: ["edge"],
    settings: () => ({ hasAccessLog: true }),
    async run(rig) {
      const before = rig.server.log.length;
      const path = `/${"a".repeat(rig.options.edge === "node" ? 15_000 : 60_000)}`;
      const replies: Reply[] = [];
      for (let i = 0; i < 10; i++) replies.push(await rig.get(path));
      await sleep(200);
      const logged = (rig.server.log.length - before) / replies.length;
      const { isHeld } = namedOrClosed(replies);
      return {
        attacker: `${summary(replies)}; ${logged.toFixed(0)} characters logged each`,
        isHeld: isHeld && logged < mostLogged,
      };
    },
  },
  {
    name: "more connections than file descriptors",
    finding: 16,
    concerns: ["edge"],
    // No client can connect while the server has no free file descriptors.
    isBystanderExempt: true,
    settings: () => ({ wrapper: ["prlimit", `--nofile=${descriptors}:${descriptors}`] }),
    run: exhaustDescriptors,
  },
  { name: "64 file descriptors", finding: 16, concerns: ["edge"], runAlone: startWithFew },
  { name: "checks in HTTP/1.0", finding: 16, concerns: ["edge"], run: askInOldHttp },
  {
    name: "1,000 MCP sessions of one client",
    finding: 16,
    concerns: [],
    settings: async ({ folder }) => ({
      models: [await tinyModel(folder, "tiny")],
      flags: ["--mcp-port", String(await freePort())],
    }),
    run: fillSessions,
  },
];

async function smuggle({ server }: { readonly server: HostileServer }): Promise<Outcome> {
  const answered: string[] = [];
  for (const header of ambiguousLengths) {
    const head = `POST /v1/models HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n${header}\r\n\r\n`;
    const reply = await exchangeRaw(server.port, `${head}0\r\n\r\n${hiddenRequest}`, 1000);
    if (statusesIn(reply).slice(1).includes(200) || reply.text.endsWith("OK"))
      answered.push(header.replace("\r\n", ", "));
  }
  const named = answered.map((header) => `"${header}"`).join("; ");
  return {
    attacker: answered.length === 0 ? "no hidden request was answered" : `answered behind ${named}`,
    isHeld: answered.length === 0,
  };
}

async function crawl({ server: { port } }: { readonly server: HostileServer }): Promise<Outcome> {
  const post = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
  const [resting, headers, body] = await Promise.all([
    exchangeRaw(port, "", slowestMs).then((reply) => reply.closedAfterMs),
    trickle(port, "GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: ", 1000, slowestMs),
    trickle(port, `${post}Content-Length: 1000000\r\n\r\n`, 1000, slowestMs),
  ]);
  const show = (name: string, ms: number | null) => `${name} ${ms === null ? "open" : `closed after ${seconds(ms)}`}`;
  return {
    attacker: [show("resting", resting), show("headers", headers), show("body", body)].join(", "),
    isHeld: [resting, headers, body].every((ms) => ms !== null),
  };
}

async function exhaustDescriptors(rig: { readonly server: HostileServer } & Rig): Promise<Outcome> {
  const { server } = rig;
  const sockets = Array.from({ length: crowd }, () => openRaw(server.port));
  await sleep(1000);
  server.takeLoad();
  await sleep(crowdMs);
  const load = server.takeLoad();
  for (const socket of sockets) socket.destroy();
  await sleep(1000);
  const reply = await rig.get("/health");
  return {
    attacker: `${load.toFixed(2)} cores busy beside ${crowd} connections; afterwards ${summary([reply])}`,
    isHeld: load < idleLoad && reply.status === 200,
  };
}

async function startWithFew(rig: Rig): Promise<Outcome> {
  try {
    await rig.start({ wrapper: ["prlimit", "--nofile=64:64"], startLimitMs: 30_000 });
    return { attacker: "it serves", isHeld: true };
  } catch (error) {
    if (!(error instanceof ServerError)) throw error;
    const hasStack = /\n\s+at /.test(error.message);
    const line =
      error.message.split("\n").find((text) => /EMFILE|descriptor|nofile|ulimit/i.test(text)) ?? "no reason given";
    return { attacker: `${hasStack ? "a raw stack" : "a message"}: ${line.slice(0, 80)}`, isHeld: !hasStack };
  }
}

async function askInOldHttp({ server: { port } }: { readonly server: HostileServer }): Promise<Outcome> {
  const forms = [
    "GET /health HTTP/1.0\r\n\r\n",
    "GET /health HTTP/1.0\r\nHost: x\r\n\r\n",
    "OPTIONS /health HTTP/1.0\r\n\r\n",
  ];
  const replies: RawReply[] = [];
  for (const form of forms) replies.push(await exchangeRaw(port, form, 15_000));
  const shown = replies.map((reply) => {
    const [status] = statusesIn(reply);
    const { closedAfterMs } = reply;
    return `${status ?? "nothing"}, ${closedAfterMs === null ? "left open" : `closed after ${seconds(closedAfterMs)}`}`;
  });
  const isHeld = replies.every((reply) => statusesIn(reply).length === 1 && (reply.closedAfterMs ?? 15_000) < 1000);
  return { attacker: shown.join("; "), isHeld };
}

async function fillSessions(rig: { readonly server: HostileServer } & Rig): Promise<Outcome> {
  const url = /(http:\/\/\S+)\/mcp/.exec(rig.server.log)?.[1] ?? "";
  const ask = (message: object, key: string, session?: string) => {
    const headers = { accept: "application/json, text/event-stream", ...(session && { "mcp-session-id": session }) };
    return post(url, "/mcp", { jsonrpc: "2.0", id: 1, ...message }, { key, headers, signal: rig.signal });
  };
  const clientInfo = { name: "probe", version: "1" };
  const initialize = { method: "initialize", params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo } };
  const begun = await ask(initialize, otherKey);
  const session = begun.headers["mcp-session-id"]?.toString();
  const replies: Reply[] = [];
  for (let sent = 0; sent < mcpSessions; sent += 20) {
    replies.push(
      ...(await Promise.all(Array.from({ length: 20 }, () => ask(initialize, "attacker-0123456789abcdef")))),
    );
  }
  const used = await ask({ method: "tools/list" }, otherKey, session);
  return {
    attacker: `${summary(replies)}; the other client's session: ${used.status}`,
    isHeld: begun.status === 200 && used.status === 200,
  };
}
