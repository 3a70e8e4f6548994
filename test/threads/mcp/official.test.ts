// MCP client with the official MCP servers: each tool of each server is called as a model would call it.
import assert from "node:assert/strict";
import type { ChildProcess } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import type { ToolAnswer, ToolQuestion } from "../../../actors/api/agent/questions.ts";
import type { ToolProgress } from "../../../actors/api/agent/server-tools.ts";
import { everythingCalls, fileCalls, memoryCalls } from "./official-calls.ts";
import { freePort, McpRig, nodeProcess, officialServers, serverSettings, startHttp, until } from "./rig.ts";

for (const kind of ["stdio", "http", "http with SSE"] as const) {
  describe(`the server "everything" over ${kind}`, () => {
    let rig: McpRig;
    let child: ChildProcess | null = null;

    before(async () => {
      if (kind === "stdio") {
        rig = new McpRig([serverSettings("e", nodeProcess(officialServers.everything, ["stdio"]))]);
      } else {
        const started = await startHttp(await freePort(), kind === "http" ? "streamableHttp" : "sse");
        child = started.child;
        // The type is "http" for SSE too: the client recognises an SSE server by its response to the first request.
        const url = `http://127.0.0.1:${started.port}/${kind === "http" ? "mcp" : "sse"}`;
        rig = new McpRig([serverSettings("e", { type: "http", url, headers: {} })]);
      }
      await rig.start(1);
    });
    after(async () => {
      await rig.stop();
      child?.kill("SIGKILL");
    });

    it("has the tools of the list, and each can be called", async () => {
      await until(() => rig.names().includes("trigger-elicitation-request"), "the late tools are listed");
      assert.deepEqual([...rig.names()].sort(), everythingCalls.map(([name]) => name).sort());
      for (const [name, args, expected] of everythingCalls) {
        const result = await rig.call(name, args);
        assert.match(result.content, expected, name);
        assert.equal(result.status, "success", `${name}: ${result.content}`);
      }
      const { images } = await rig.call("get-tiny-image", {});
      assert.deepEqual([...Buffer.from(images[0] ?? "", "base64").subarray(1, 4)], [...Buffer.from("PNG")]);
    });

    it("reports progress", async () => {
      const progress: ToolProgress[] = [];
      const onProgress = (one: ToolProgress): void => void progress.push(one);
      await rig.call("trigger-long-running-operation", { duration: 0.9, steps: 3 }, { onProgress });
      assert.deepEqual(progress.slice(0, 2), [
        { progress: 1, total: 3, message: null },
        { progress: 2, total: 3, message: null },
      ]);
    });

    it("is told of a cancelled call, which ends at once", async () => {
      const cancelling = new AbortController();
      const startedAt = performance.now();
      setTimeout(() => cancelling.abort(), 100);
      const call = rig.call(
        "trigger-long-running-operation",
        { duration: 20, steps: 2 },
        { signal: cancelling.signal },
      );
      await assert.rejects(call, { code: "cancelled" });
      assert.ok(performance.now() - startedAt < 2000);
      assert.equal((await rig.call("echo", { message: "still here" })).content, "Echo: still here");
    });

    it("asks the user, and gets the answer", async () => {
      const questions: ToolQuestion[] = [];
      const answers: ToolAnswer[] = [
        { action: "accept", content: { name: "Ada", check: true, integer: 5 } },
        { action: "decline" },
        { action: "cancel" },
      ];
      const ask = async (question: ToolQuestion): Promise<ToolAnswer> => {
        questions.push(question);
        return answers.shift() ?? { action: "cancel" };
      };
      const accepted = await rig.call("trigger-elicitation-request", {}, { ask });
      assert.match(accepted.content, /Ada/);
      assert.match(accepted.content, /It was a dark and stormy night/, "defaults are filled in");
      assert.match((await rig.call("trigger-elicitation-request", {}, { ask })).content, /declined/);
      assert.match((await rig.call("trigger-elicitation-request", {}, { ask })).content, /cancelled/);
      assert.equal(questions[0]?.label, "e asks");
      assert.deepEqual(questions[0]?.schema.required, ["name"]);
    });

    it("rejects wrong arguments, which becomes an error for the model", async () => {
      for (const args of ["not json", "[1]", { a: "x" }]) {
        const { status, content } = await rig.call("get-sum", args);
        assert.equal(status, "error", content);
      }
    });
  });
}

describe("the server for files", () => {
  const folder = mkdtempSync(join(tmpdir(), "troupe-mcp-files-"));
  const rig = new McpRig([
    serverSettings("fs", nodeProcess(officialServers.filesystem, [folder]), { toolPrefix: "fs" }),
  ]);
  before(() => rig.start(1));
  after(async () => {
    await rig.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  it("has tools with the prefix, and each can be called", async () => {
    const calls = fileCalls(folder);
    assert.deepEqual([...rig.names()].sort(), calls.map(([name]) => `fs_${name}`).sort());
    for (const [name, args, expected] of calls)
      assert.match((await rig.call(`fs_${name}`, args)).content, expected, name);
  });

  it("refuses paths outside of its folder, as an error for the model", async () => {
    const { status, content } = await rig.call("fs_read_file", { path: "/etc/passwd" });
    assert.equal(status, "error");
    assert.match(content, /outside allowed directories/);
  });
});

describe("the server for memory", () => {
  const folder = mkdtempSync(join(tmpdir(), "troupe-mcp-memory-"));
  const environment = { MEMORY_FILE_PATH: join(folder, "memory.jsonl") };
  const rig = new McpRig([serverSettings("memory", nodeProcess(officialServers.memory, [], environment))]);
  before(() => rig.start(1));
  after(async () => {
    await rig.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  it("has tools that can each be called", async () => {
    assert.deepEqual([...rig.names()].sort(), memoryCalls.map(([name]) => name).sort());
    for (const [name, args, expected] of memoryCalls)
      assert.match((await rig.call(name, args)).content, expected, name);
  });
});
