// MCP server faults: servers fail, hang or flood. A call to such a server fails within its time limit, with an error
// that names the cause. Calls to other servers are not affected.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { freePort, McpRig, nodeProcess, serverSettings, until } from "./rig.ts";

const MIB = 2 ** 20;
const program = fileURLToPath(new URL("../../fixtures/mcp/hostile-server.js", import.meta.url));
const killedClient = fileURLToPath(new URL("killed-client.js", import.meta.url));
/** Time limit of each call in ms. */
const callTimeoutMs = 1000;
/** Maximum growth of this process's memory (RSS, in bytes) while a server floods it with output. */
const maxGrowth = 100 * MIB;

const hostile = (name: string, mode = name, args: readonly string[] = []) =>
  serverSettings(name, nodeProcess(program, [mode, ...args]), { callTimeoutMs, toolPrefix: name });

/** Returns the process ids of the hostile server in this mode, without the shells that supervise it. */
function processes(mode: string): readonly number[] {
  const lines = execFileSync("ps", ["-eo", "pid,args"], { encoding: "utf8" }).split("\n");
  return lines
    .filter((line) => line.includes(`${program} ${mode}`) && !line.includes("read -r"))
    .map((line) => Number.parseInt(line, 10));
}

/**
 * Calls a tool of the bad server. Until that call ends, repeatedly calls the good server, where each call must
 * succeed. Returns the outcome and duration of the bad call, and the longest duration of a good call.
 */
async function disturb(rig: McpRig, tool: string) {
  const startedAt = performance.now();
  const outcome = rig.call(`bad_${tool}`, {}).then(
    ({ status, content }) => ({ status, content }),
    (error: Error) => ({ status: "rejected", content: error.message }),
  );
  let isDone = false;
  void outcome.then(() => {
    isDone = true;
  });
  let slowest = 0;
  do {
    const calledAt = performance.now();
    assert.equal((await rig.call("good_echo", {})).content, "echo");
    slowest = Math.max(slowest, performance.now() - calledAt);
  } while (!isDone);
  return { ...(await outcome), ms: performance.now() - startedAt, slowest };
}

const reconnected = (rig: McpRig): Promise<void> =>
  until(() => rig.client.connected === 2, "the server is connected again");

describe("MCP servers that misbehave during a call", () => {
  const rig = new McpRig([hostile("bad"), hostile("good")]);
  before(() => rig.start(2));
  after(() => rig.stop());

  it("a server that dies ends its call at once, and comes back", async () => {
    const { status, content, ms } = await disturb(rig, "die");
    assert.equal(status, "rejected");
    assert.match(content, /MCP server "bad" cannot be reached: its process exited with code 7/);
    assert.ok(ms < callTimeoutMs, `${ms} ms`);
    await assert.rejects(async () => rig.tool("bad_echo"));
    await reconnected(rig);
    assert.equal((await rig.call("bad_echo", {})).content, "echo");
  });

  it("a server that is killed in a call ends the call at once", async () => {
    const call = rig.call("bad_hang", {});
    await sleep(100);
    const [server = 0] = processes("bad");
    process.kill(server, "SIGKILL");
    const killedAt = performance.now();
    await assert.rejects(call, { code: "peer_gone", message: /its process was killed by SIGKILL/ });
    assert.ok(performance.now() - killedAt < callTimeoutMs / 2);
    await reconnected(rig);
  });

  it("a call that hangs ends at its limit, and the server is told", async () => {
    const { status, content, ms } = await disturb(rig, "hang");
    assert.equal(status, "timeout");
    assert.match(content, /MCP server \\"bad\\" did not answer the call within 1 s \(tool_timeout_secs\)/);
    assert.ok(ms >= callTimeoutMs && ms < 2 * callTimeoutMs, `${ms} ms`);
    assert.equal((await rig.call("bad_cancelled", {})).content, "1");
  });

  it("a server whose process is busy for ever affects only its own calls", async () => {
    const { status, ms, slowest } = await disturb(rig, "block");
    assert.equal(status, "timeout");
    assert.ok(ms < 2 * callTimeoutMs, `${ms} ms`);
    assert.ok(slowest < callTimeoutMs, `${slowest} ms`);
    // The server does not respond to the client's health check either, so the client kills and restarts it.
    await until(() => rig.client.connected < 2, "the server is disconnected");
    await reconnected(rig);
  });

  it("answers that repeat an id, and invalid lines, are ignored", async () => {
    assert.equal((await rig.call("bad_repeat", {})).content, "first");
    assert.equal((await rig.call("bad_invalid", {})).content, "after invalid lines");
    assert.equal((await rig.call("bad_echo", {})).content, "echo");
  });

  it("a request for sampling is rejected with a specific error", async () => {
    const { content } = await rig.call("bad_sample", {});
    assert.match(content, /troupe does not support \\?"sampling\/createMessage/);
  });

  it("a changed list of tools is accepted while calls run; the tools of a run stay callable", async () => {
    const old = rig.tool("bad_echo");
    const hanging = rig.call("bad_hang", {});
    assert.equal((await rig.call("bad_rename", {})).content, "renamed");
    await until(() => rig.names().includes("bad_new_echo_"), "the new tool is listed");
    assert.ok(!rig.names().includes("bad_echo"));
    assert.equal((await rig.call("bad_new_echo_", {})).content, "new");
    assert.equal((await old.run({ ...(await callOf()), id: "old" })).content, "echo");
    assert.equal((await hanging).status, "timeout");
    const said = rig.lines.filter((line) => line.includes("bad_new_echo_"));
    assert.equal(said.length, 1, said.join(""));
  });

  async function callOf() {
    const ask = null;
    return {
      arguments: "{}",
      session: "s",
      client: "c",
      signal: new AbortController().signal,
      onProgress: () => {},
      ask,
    };
  }
});

describe("MCP servers that flood", () => {
  for (const [tool, reason] of [
    ["junk", /it printed 1000 lines that are not JSON-RPC messages/],
    ["endless", /it sent a message of more than 16 MiB/],
    ["large", /it sent a message of more than 16 MiB/],
  ] as const) {
    it(`a server that writes 100 MB (${tool}) is disconnected; memory stays bounded`, async (test) => {
      // Each case needs a new client, because a client increases the pause between connection attempts.
      const rig = new McpRig([hostile("bad"), hostile("good")]);
      await rig.start(2);
      const before = process.memoryUsage().rss;
      let highest = before;
      const timer = setInterval(() => {
        highest = Math.max(highest, process.memoryUsage().rss);
      }, 5);
      const { status, content, slowest } = await disturb(rig, tool);
      clearInterval(timer);
      assert.equal(status, "rejected", content);
      assert.match(content, reason);
      test.diagnostic(
        `memory grew by ${Math.round((highest - before) / MIB)} MiB; slowest other call ${Math.round(slowest)} ms`,
      );
      assert.ok(highest - before <= maxGrowth, `memory grew by ${(highest - before) / MIB} MiB`);
      assert.ok(slowest < callTimeoutMs, `${slowest} ms`);
      await reconnected(rig);
      await rig.stop();
    });
  }
});

describe("MCP servers that cannot be connected", () => {
  it("do not stop the start, are reported once, and are tried again with a growing pause", async () => {
    const port = await freePort();
    const rig = new McpRig([
      hostile("exits", "exit"),
      hostile("version", "version"),
      serverSettings("missing", {
        type: "process",
        command: "no-such-program",
        args: [],
        environment: {},
        workFolder: null,
      }),
      serverSettings("refused", { type: "http", url: `http://127.0.0.1:${port}/mcp`, headers: {} }),
      serverSettings("socket", { type: "websocket", url: `ws://127.0.0.1:${port}/mcp`, headers: {} }),
      hostile("good"),
    ]);
    await rig.start(1);
    assert.equal((await rig.call("good_echo", {})).content, "echo");
    const warnings = () => rig.lines.map((line) => JSON.parse(line)).filter(({ level }) => level === 40);
    await until(
      () => rig.lines.filter((line) => line.includes('"server":"exits","reason"')).length >= 3,
      "three tries",
    );
    const reasons = Object.fromEntries(warnings().map(({ server, reason }) => [server, reason]));
    assert.match(reasons.exits, /its process exited with code 3/);
    assert.match(reasons.version, /protocol version/);
    assert.match(reasons.missing, /its command "no-such-program" is not an executable program/);
    assert.match(reasons.refused, /ECONNREFUSED/);
    assert.match(reasons.socket, /ECONNREFUSED/);
    assert.equal(warnings().length, 5, "each server is reported once");
    const tries = rig.lines
      .map((line) => JSON.parse(line))
      .filter(({ server, reason }) => server === "exits" && reason);
    assert.deepEqual(
      tries.slice(0, 3).map(({ retryInMs }) => retryInMs),
      [500, 1000, 2000],
    );
    await rig.stop();
  });
});

describe("secrets of MCP servers", () => {
  it("are in no log line and no error", async () => {
    const secret = "sk-very-secret-value";
    const bad = { ...hostile("bad", "bad", [secret]), secrets: [secret] };
    const url = `http://127.0.0.1:${await freePort()}/mcp?key=${secret}`;
    const remote = serverSettings(
      "remote",
      { type: "http", url, headers: { authorization: `Bearer ${secret}` } },
      { secrets: [secret] },
    );
    const rig = new McpRig([bad, remote]);
    await rig.start(1);
    const { status, content } = await rig.call("bad_print", {});
    assert.deepEqual([status, content], ["error", '{"status":"error","error":"failed with [redacted]"}']);
    await until(
      () => rig.lines.some((line) => line.includes("the secret is [redacted], and again: [redacted]")),
      "stderr is logged",
    );
    await until(() => rig.lines.some((line) => line.includes('[redacted]\\"}')), "log messages are logged");
    await until(() => rig.lines.some((line) => line.includes("ECONNREFUSED")), "the failure is logged");
    assert.ok(!rig.lines.join("").includes(secret));
    await rig.stop();
  });
});

describe("the end of MCP servers", () => {
  it("comes with the client, also for a server that does not end when its stdin ends", async () => {
    const rig = new McpRig([hostile("stubborn", "stubborn")]);
    await rig.start(1);
    assert.ok(processes("stubborn").length > 0);
    await rig.stop();
    await until(() => processes("stubborn").length === 0, "all processes have ended");
  });

  it("comes with the death of this server", async () => {
    const client = spawn(process.execPath, [killedClient, program], { stdio: ["ignore", "pipe", "inherit"] });
    await new Promise((resolve) => client.stdout.once("data", resolve));
    assert.equal(processes("orphaned").length, 1);
    client.kill("SIGKILL");
    await until(() => processes("orphaned").length === 0, "the process of the MCP server has ended");
  });
});
