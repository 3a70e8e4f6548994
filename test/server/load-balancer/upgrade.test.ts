// Upgrades on a shared port: a new server starts while the old one still runs, then the old one stops. UPGRADES sets the number
// of upgrades, LANES the number of clients that send requests during them.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { sharedPortRisk } from "../../../http/server/port/shared-port.ts";
import { initialize } from "../../fixtures/mcp-server.ts";
import { tinyModel } from "../../fixtures/models/models.ts";
import { type RunningServer, startServer } from "../../fixtures/serve.ts";
import { freePort } from "../../fixtures/store/redis.ts";
import { jsonBody } from "../replicas/rig.ts";

const upgrades = Number(process.env.UPGRADES ?? 1);
const lanes = Number(process.env.LANES ?? 16);
const TOKENS = 40;
/** Shutdown delay: longer than a request, so that every connection completes its last request within it. */
const DELAY_SECS = process.env.DELAY_SECS ?? "4";
const isLinux = process.platform === "linux";

describe("servers with reuse_port", {
  skip: isLinux ? false : "SO_REUSEPORT is of Linux",
  timeout: 120_000 + upgrades * 120_000,
}, () => {
  it(`fail no request in ${upgrades} upgrades under ${lanes} clients`, async (t) => {
    const port = await freePort();
    const model = await tinyModel();
    const flags = ["-m", model, "--threads", "1", "--max-seqs", String(lanes), "--port", String(port), "--reuse-port"];
    const start = () => startServer([...flags, "--shutdown-delay-secs", DELAY_SECS, "--disable-access-log"]);
    let current = await start();
    const { url } = current;
    const load = new Load(`http://127.0.0.1:${port}`);
    const times: number[] = [];
    try {
      for (let i = 0; i < upgrades; i++) {
        const next = await start();
        const began = performance.now();
        const before = load.count;
        assert.deepEqual(await current.stop(), { code: 0, signal: null });
        times.push(performance.now() - began);
        assert.match(current.output(), /requests are still served/);
        assert.ok(load.count > before, "requests go on while the old server stops");
        current = next;
      }
    } finally {
      const failures = [...(await load.stop())].sort(resetsFirst);
      await stopNow(current);
      // Unless tcp_migrate_req is set, a connection that arrives between a server's last accept and the close of its socket is
      // reset.
      const resets = failures.filter(isReset).length;
      assert.deepEqual(failures.slice(resets), [], `failures of ${load.count} requests at ${url}`);
      assert.ok(resets === 0 || (sharedPortRisk() !== null && resets <= upgrades), `${resets} connections were reset`);
      t.diagnostic(`${resets} connections reset`);
    }
    t.diagnostic(
      `${load.count} requests; the old server ended after ${times.map((ms) => `${Math.round(ms)} ms`).join(", ")}`,
    );
  });
});

describe("a server with reuse_port that MCP clients listen to", {
  skip: isLinux ? false : "SO_REUSEPORT is of Linux",
}, () => {
  it("ends their streams when it leaves the port, and does not wait for them", { timeout: 120_000 }, async () => {
    const [port, mcpPort] = [await freePort(), await freePort()];
    const flags = ["-m", await tinyModel(), "--threads", "1", "--reuse-port", "--shutdown-delay-secs", "100"];
    const server = await startServer([...flags, "--port", String(port), "--mcp-port", String(mcpPort)]);
    const url = `http://127.0.0.1:${mcpPort}/mcp`;
    const accept = { accept: "application/json, text/event-stream" };
    const begun = await fetch(url, {
      ...jsonBody(initialize),
      headers: { ...accept, "content-type": "application/json" },
    });
    await begun.text();
    const session = { "mcp-session-id": begun.headers.get("mcp-session-id") ?? "" };
    const listening = await fetch(url, { headers: { accept: "text/event-stream", ...session } });
    assert.equal(listening.status, 200);
    const began = performance.now();
    const stopped = server.stop();
    await listening.text();
    assert.ok(performance.now() - began < 5000, "the stream ends at once");
    assert.deepEqual(await stopped, { code: 0, signal: null });
    // All idle client connections are closed 12 s after the last request, so the server does not wait longer.
    assert.ok(performance.now() - began < 30_000, "the server ends long before the delay has passed");
  });
});

const resetsFirst = (a: string, b: string): number => Number(isReset(b)) - Number(isReset(a));
const isReset = (failure: string): boolean => /(read ECONNRESET|connect ECONNRESET \S+)$/.test(failure);

async function stopNow({ process: child }: RunningServer): Promise<void> {
  child.kill("SIGKILL");
}

/** Clients that send one request after another: some stream, some do not, and some open a new connection for each request. */
class Load {
  count = 0;
  readonly #url: string;
  readonly #failures: string[] = [];
  readonly #lanes: Promise<void>[];
  #isOver = false;

  constructor(url: string) {
    this.#url = url;
    this.#lanes = Array.from({ length: lanes }, (_, lane) => this.#run(lane));
  }

  async stop(): Promise<readonly string[]> {
    this.#isOver = true;
    await Promise.all(this.#lanes);
    return this.#failures;
  }

  async #run(lane: number): Promise<void> {
    const isStream = lane % 2 === 0;
    const headers = lane % 4 === 3 ? { connection: "close" } : {};
    const content = `Lane ${lane}`;
    const body = { messages: [{ role: "user", content }], max_tokens: TOKENS, ignore_eos: true, stream: isStream };
    const init = jsonBody(body);
    while (!this.#isOver) {
      const failure = await this.#ask({ ...init, headers: { ...init.headers, ...headers } }, isStream).catch(
        (error: Error) => `${error.message}: ${String(error.cause)}`,
      );
      this.count++;
      if (failure !== null) this.#failures.push(`lane ${lane}: ${failure}`);
    }
  }

  /** Sends a request. Returns what is wrong with the response; null = nothing. */
  async #ask(init: RequestInit, isStream: boolean): Promise<string | null> {
    const reply = await fetch(`${this.#url}/v1/chat/completions`, init);
    const text = await reply.text();
    const isWhole = isStream ? text.endsWith("data: [DONE]\n\n") : text.endsWith("}");
    const isEnd = text.includes('"finish_reason":"length"');
    return reply.status === 200 && isWhole && isEnd ? null : `${reply.status} ${text.slice(-200)}`;
  }
}
