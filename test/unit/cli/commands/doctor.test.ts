import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { modelReports, report } from "../../../../cli/commands/doctor.ts";
import { resolveConfig } from "../../../../cli/config/config.ts";
import { checkOptions } from "../../../../cli/system/check-options.ts";
import {
  folderCheck,
  homeCheck,
  memoryChecks,
  nodeCheck,
  numaChecks,
  portCheck,
  runChecks,
  settingsCheck,
  threadCheck,
} from "../../../../cli/system/checks.ts";
import { mcpCheck } from "../../../../cli/system/mcp-check.ts";
import { bareInspector, type Check } from "../../../../runtime/host/system.ts";

const GIB = 2 ** 30;
const noHost = {
  gpu: async () => null,
  devices: async () => [],
  problem: async () => "libllama.so is not there",
  gpuAdvice: null,
};

it("the doctor names what runs a model of speech or of images", async (t) => {
  const pipeline = mkdtempSync(join(tmpdir(), "doctor-"));
  t.after(() => rmSync(pipeline, { recursive: true, force: true }));
  const voice = join(pipeline, "voice.onnx");
  for (const path of [voice, `${voice}.json`, join(pipeline, "model_index.json")]) writeFileSync(path, "{}");
  const found = async (modelId: string, kind = "auto") => {
    const flags = { "--model-id": [modelId], "--kind": kind };
    const config = resolveConfig({ command: "serve", flags, environment: {}, defaultModel: "none" });
    const { checks, engines } = await modelReports(config.models, config);
    assert.deepEqual(engines, []);
    return checks.map(({ status, message }) => `${status}: ${message}`);
  };
  assert.deepEqual(await found("espeak-ng"), ['ok: "espeak-ng" is a speech model (espeak)']);
  assert.deepEqual(await found(voice), [`ok: "${voice}" is a speech model (piper)`]);
  assert.deepEqual(await found(pipeline), [`ok: "${pipeline}" is a diffusion model, which runs on ONNX Runtime`]);
  assert.match((await found(pipeline, "speech")).join(), /^error: /);
});

describe("the doctor's checks", () => {
  it("require a recent Node.js", () => {
    assert.deepEqual(
      ["20.10.9", "18.20.0", "20.11.0", "22.0.0"].map((version) => nodeCheck(version).status),
      ["error", "error", "ok", "ok"],
    );
  });

  it("compare models with the free memory", () => {
    const models = [
      { id: "small", bytes: GIB },
      { id: "tight", bytes: 9 * GIB },
      { id: "large", bytes: 11 * GIB },
    ];
    const found = memoryChecks(models, 10 * GIB);
    assert.deepEqual(
      found.map(({ status, message }) => [status, message]),
      [
        ["warn", '"tight" has 9.0 GiB of weights; 10.0 GiB of memory are free'],
        ["error", '"large" has 11.0 GiB of weights; 10.0 GiB of memory are free'],
      ],
    );
    const [fits] = memoryChecks(models.slice(0, 1), 10 * GIB);
    assert.equal(fits?.status, "ok");
    assert.match(fits?.message ?? "", /^".*" fits: .* of weights; 10\.0 GiB are free$/);
    assert.equal(memoryChecks([], GIB / 2)[0]!.status, "warn");
  });

  it("warn of more threads than cores", () => {
    assert.equal(threadCheck(0, 4).status, "ok");
    assert.match(threadCheck(5, 4).message, /5 compute threads are too many for 4 cores/);
  });

  it("warn of more threads than a CPU quota keeps busy", () => {
    assert.match(threadCheck(0, 8, 1.5).message, /^2 compute threads on 8 cores, with a CPU quota of 1\.50$/);
    const tooMany = threadCheck(8, 8, 1.5);
    assert.deepEqual([tooMany.status, tooMany.suggestion], ["warn", "set threads to 0, which uses 2"]);
    assert.match(threadCheck(0, 4, 6).message, /^4 compute threads on 4 cores$/);
  });

  it("warn of cores of several NUMA nodes, and only then", () => {
    assert.deepEqual(numaChecks([]), []);
    assert.deepEqual(numaChecks([1]), []);
    const [check] = numaChecks([1, 2]);
    assert.equal(check?.status, "warn");
    assert.match(check?.suggestion ?? "", /numactl --cpunodebind=1 --membind=1/);
  });

  it("detect a port that is in use and one that is free", async () => {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as { port: number };
    const asked = { setting: "mcp_port", host: "127.0.0.1", port };
    const taken = await portCheck(asked);
    assert.deepEqual([taken.name, taken.status], ["mcp_port", "error"]);
    await new Promise((resolve) => server.close(resolve));
    assert.equal((await portCheck(asked)).status, "ok");
  });

  it("check the nearest existing parent of a folder that does not exist yet", async () => {
    const folder = { what: "cache", path: "/tmp/not-there/nor-this", isRequired: true };
    assert.equal((await folderCheck(folder)).status, "ok");
    assert.equal((await folderCheck({ ...folder, path: `${process.execPath}/not-there` })).status, "error");
  });

  it("only warn of a folder that the server does not need", async () => {
    const config = resolveConfig({ command: "serve", flags: {}, environment: {}, defaultModel: "m" });
    const { folders } = checkOptions(config, null, []);
    assert.deepEqual(
      folders.map(({ what, isRequired }) => [what, isRequired]),
      [
        ["hub_cache", false],
        ["model_cache", false],
        ["state_dir", false],
      ],
    );
    const flags = { "--state-dir": "/tmp/x" };
    const asked = checkOptions(
      resolveConfig({ command: "serve", flags, environment: {}, defaultModel: "m" }),
      null,
      [],
    );
    assert.equal(asked.folders.at(-1)!.isRequired, true);
    const unwritable = { what: "cache", path: `${process.execPath}/not-there`, isRequired: false };
    assert.equal((await folderCheck(unwritable)).status, "warn");
  });

  it("say which folders are missing if the user has no home folder", () => {
    const folder = { what: "hub_cache", path: "/tmp", isRequired: false };
    assert.equal(homeCheck([folder]).status, "ok");
    const { status, message } = homeCheck([{ ...folder, path: null }]);
    assert.deepEqual([status, message], ["error", "this user has no home folder, which is needed for hub_cache"]);
    assert.equal(homeCheck([{ what: "state_dir", path: null, isRequired: false }]).status, "warn");
  });

  it("read the file of MCP servers, and look up their programs", async () => {
    const folder = mkdtempSync(join(tmpdir(), "troupe-doctor-"));
    try {
      const file = join(folder, "mcp.json");
      const checked = async (content: string) => {
        writeFileSync(file, content);
        const { status, message } = await mcpCheck(file);
        return [status, message];
      };
      const servers = { here: { command: process.execPath }, far: { url: "http://127.0.0.1:1/mcp" } };
      assert.deepEqual(await checked(JSON.stringify({ mcpServers: servers })), [
        "ok",
        `2 in ${file}: here (stdio), far (http)`,
      ]);
      const lost = { ...servers, lost: { command: "no-such-program" }, gone: { command: "./gone", cwd: folder } };
      const [status, message] = await checked(JSON.stringify({ mcpServers: lost }));
      assert.deepEqual([status, message], ["warn", "the program is not found of the MCP servers lost, gone"]);
      assert.equal((await checked("{}"))[0], "error");
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });

  it("say why the settings cannot be used", () => {
    assert.equal(settingsCheck(null).status, "ok");
    assert.deepEqual(
      [settingsCheck("PORT: wrong").status, settingsCheck("PORT: wrong").message],
      ["error", "PORT: wrong"],
    );
  });

  it("continue if one engine does not load, and say so", async () => {
    const options = {
      hubCache: "/tmp",
      folders: [],
      settingsProblem: null,
      mcpConfig: null,
      ports: [],
      models: [],
      threads: 0,
      engines: [],
    };
    const checks = await runChecks(options, await bareInspector().info(), noHost);
    const llama = checks.find(({ name }) => name === "llama_engine")!;
    assert.deepEqual([llama.status, llama.message], ["warn", "libllama.so is not there"]);
    assert.notEqual(checks.find(({ name }) => name === "wasm_engine")!.status, "error");
    assert.equal(new Set(checks.map(({ name }) => name)).size, checks.length);
  });

  it("are shown one per line, with advice below", async () => {
    const checks: Check[] = [
      { name: "disk", status: "error", message: "full", suggestion: "free room" },
      { name: "gpu", status: "ok", message: "none" },
    ];
    const text = report({ system: await bareInspector().info(), checks });
    assert.match(text, /\nERROR {2}disk: full\n {8}free room\nok {5}gpu: none$/);
  });
});
