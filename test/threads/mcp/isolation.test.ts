// Isolation of MCP servers: environment variables, sandbox, calls of several sessions, and the exit of a server or
// of the client's thread.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { copyFileSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { Worker } from "node:worker_threads";
import type { ToolAnswer } from "../../../actors/api/agent/questions.ts";
import { inspectIsolation } from "../../../runtime/sandbox/host-isolation.ts";
import { freePort, McpRig, nodeProcess, officialServers, serverSettings, startHttp, until } from "./rig.ts";

const program = fileURLToPath(new URL("../../fixtures/mcp/hostile-server.js", import.meta.url));
const everything = nodeProcess(officialServers.everything, ["stdio"]);

interface Place {
  readonly folder: string;
  readonly variables: readonly string[];
  readonly sees: boolean;
}

describe("the processes of MCP servers", () => {
  const folder = mkdtempSync(join(tmpdir(), "troupe-mcp-isolation-"));
  before(() => {
    process.env.TROUPE_TEST_SECRET = "of this process";
  });
  after(() => {
    delete process.env.TROUPE_TEST_SECRET;
    rmSync(folder, { recursive: true, force: true });
  });

  it("have none of this server's variables except a few, and those of their settings", async () => {
    const rig = new McpRig([serverSettings("s", nodeProcess(program, ["good"], { OWN: "value" }))]);
    await rig.start(1);
    const { variables } = JSON.parse((await rig.call("where", {})).content) as Place;
    const shells = ["PWD", "OLDPWD", "SHLVL", "_"];
    const allowed = ["PATH", "HOME", "LANG", "TMPDIR", "OWN", ...shells];
    assert.deepEqual(
      variables.filter((name) => !allowed.includes(name)),
      [],
    );
    assert.ok(variables.includes("PATH") && variables.includes("OWN"));
    await rig.stop();
  });

  it("run in the sandbox if it is given: they see their folder, and not this server's files", async (test) => {
    if (inspectIsolation().kind === "none") return test.skip("this machine has no isolation");
    copyFileSync(program, join(folder, "server.mjs"));
    // The files of the folder are the user's: they do not count against the limit.
    writeFileSync(join(folder, "large"), Buffer.alloc(3 * 2 ** 20));
    const limits = { maxMemoryMb: 1024, maxCpuSecs: 60, maxProcs: 64, maxDiskMb: 2 };
    const sandbox = { mode: "on", profile: "restricted", network: "none", ...limits } as const;
    const args = ["server.mjs", "good", program];
    const source = {
      type: "process",
      command: "node",
      args,
      environment: { OWN: "value" },
      workFolder: folder,
    } as const;
    const rig = new McpRig([serverSettings("s", source)], { sandbox });
    await rig.start(1);
    const place = JSON.parse((await rig.call("where", {})).content) as Place;
    assert.deepEqual([place.folder, place.sees], ["/work", false]);
    assert.ok(place.variables.includes("OWN"));
    assert.equal(existsSync(`${folder}.tmp`), false, "nothing is created beside the user's folder");
    // A server runs for as long as this process, so its processor time is not limited.
    const { stdout } = spawnSync("ps", ["-eo", "pid=,args=", "-ww"], { encoding: "utf8" });
    const [pid] =
      stdout
        .split("\n")
        .find((line) => /^\s*\d+ node server\.mjs good/.test(line))
        ?.trim()
        .split(" ") ?? [];
    assert.match(readFileSync(`/proc/${pid}/limits`, "utf8"), /Max cpu time +unlimited/);
    await sleep(500);
    assert.equal((await rig.call("echo", {})).content, "echo");
    await rig.stop();
  });
});

describe("calls of MCP servers", () => {
  const rig = new McpRig([serverSettings("s", everything)], { maxConcurrentCalls: 2 });
  before(async () => {
    await rig.start(1);
    await until(() => rig.names().includes("trigger-elicitation-request"), "the tools are listed");
  });
  after(() => rig.stop());

  it("run up to the limit at once; clients take turns for the rest", async () => {
    const order: string[] = [];
    const call = async (client: string): Promise<void> => {
      await rig.call("trigger-long-running-operation", { duration: 0.2, steps: 1 }, { client });
      order.push(client);
    };
    const startedAt = performance.now();
    await Promise.all(["a", "a", "a", "a", "a", "a", "b", "b"].map(call));
    assert.ok(performance.now() - startedAt >= 4 * 200);
    assert.ok(order.lastIndexOf("b") < 7, `the calls of b wait for those of a: ${order.join()}`);
  });

  it("are cancelled at once while they wait for others", async () => {
    const running = [1, 2].map(() => rig.call("trigger-long-running-operation", { duration: 1, steps: 1 }));
    const cancelling = new AbortController();
    const waiting = rig.call("echo", { message: "x" }, { signal: cancelling.signal });
    await sleep(50);
    const cancelledAt = performance.now();
    cancelling.abort();
    await assert.rejects(waiting, { code: "cancelled" });
    assert.ok(performance.now() - cancelledAt < 500);
    await Promise.all(running);
  });

  it("of several sessions: a question is declined, because it is not known whose it is", async () => {
    let asked = 0;
    const ask = async (): Promise<ToolAnswer> => {
      asked++;
      return { action: "decline" };
    };
    const other = rig.call("trigger-long-running-operation", { duration: 0.5, steps: 1 }, { session: "sess_2", ask });
    await sleep(50);
    assert.match((await rig.call("trigger-elicitation-request", {}, { ask })).content, /declined/);
    assert.equal(asked, 0);
    await other;
    await rig.call("trigger-elicitation-request", {}, { ask });
    assert.equal(asked, 1);
  });

  it("end their questions when they are cancelled", async () => {
    const cancelling = new AbortController();
    let ended = false;
    const ask = async (_: unknown, signal: AbortSignal): Promise<ToolAnswer> => {
      setTimeout(() => cancelling.abort(), 50);
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      ended = true;
      return { action: "cancel" };
    };
    await assert.rejects(rig.call("trigger-elicitation-request", {}, { ask, signal: cancelling.signal }), {
      code: "cancelled",
    });
    await until(() => ended, "the question has ended");
  });
});

describe("an MCP server over HTTP that is killed", () => {
  it("ends its call at once, and is connected again when it is back, with a new session", async () => {
    const port = await freePort();
    const first = await startHttp(port, "streamableHttp");
    const rig = new McpRig([serverSettings("s", { type: "http", url: `http://127.0.0.1:${port}/mcp`, headers: {} })]);
    await rig.start(1);
    const call = rig.call("trigger-long-running-operation", { duration: 20, steps: 1 });
    await sleep(200);
    const killedAt = performance.now();
    first.child.kill("SIGKILL");
    await assert.rejects(call, { code: "peer_gone" });
    assert.ok(performance.now() - killedAt < 5000, "the call ends long before its limit");
    const second = await startHttp(port, "streamableHttp");
    await until(() => rig.client.connected === 1, "it is connected again");
    assert.equal((await rig.call("echo", { message: "back" })).content, "Echo: back");
    // Restarts the server between two calls, so that the server no longer knows the client's session.
    second.child.kill("SIGKILL");
    const third = await startHttp(port, "streamableHttp");
    await rig.call("echo", { message: "lost" }).catch(() => {});
    await until(
      () => rig.client.connected === 1 && rig.lines.filter((line) => line.includes("is connected")).length >= 3,
      "it is connected again",
      () => rig.lines.join(""),
    );
    assert.equal((await rig.call("echo", { message: "again" })).content, "Echo: again");
    await rig.stop();
    third.child.kill("SIGKILL");
  });
});

describe("the place of the MCP client that ends", () => {
  it("fails its calls, has no tools meanwhile, and is started again", async () => {
    let worker: Worker | null = null;
    const onWorker = (started: Worker): void => {
      worker = started;
    };
    process.on("worker", onWorker);
    const rig = new McpRig([serverSettings("s", everything)]);
    await rig.start(1);
    const call = rig.call("trigger-long-running-operation", { duration: 20, steps: 1 });
    await sleep(100);
    await (worker as Worker | null)?.terminate();
    await assert.rejects(call, { code: "peer_gone" });
    await until(() => rig.lines.some((line) => line.includes("the MCP place ended")), "the end is reported");
    await until(() => rig.client.connected === 1, "the server is connected again");
    assert.equal((await rig.call("echo", { message: "x" })).content, "Echo: x");
    await rig.stop();
    process.off("worker", onWorker);
  });
});
