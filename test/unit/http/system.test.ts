import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createApp } from "../../../http/app.ts";
import { diagnosisSchema, systemInfoSchema } from "../../../http/system/schemas.ts";
import { bareInspector, cpuFlags, osName } from "../../../runtime/host/system.ts";
import { FakeInference } from "../../fixtures/fakes/fake-inference.ts";
import { request } from "../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../fixtures/http-server.ts";

describe("system routes", () => {
  const gpu = { kind: "cuda", ordinal: 0, name: "GPU 1", totalBytes: 100, availableBytes: 60 };
  const bare = bareInspector("/models");
  const speeds = { prompt: 400, oneRow: 60, sixteenRows: null, weightBytes: 1024 };
  const engine = { model: "m", engine: "wasm", reason: "quicker", figures: { wasm: speeds }, advice: "a newer Node" };
  const system = {
    info: async () => ({ ...(await bare.info()), devices: [gpu], engines: [engine] }),
    diagnose: async () => ({
      system: await bare.info(),
      checks: [{ name: "disk", status: "warn" as const, message: "little room", suggestion: "free some" }],
    }),
  };
  const app = createApp({ inference: new FakeInference(), log: recordingLog(), system });

  it("report the machine and the build", async () => {
    const { status, body } = await request(app, "GET", "/v1/system/info");
    assert.equal(status, 200);
    const info = systemInfoSchema.parse(JSON.parse(body));
    assert.equal(info.hf_cache_path, "/models");
    assert.ok(info.cpu.logical_cores >= 1);
    assert.ok(info.memory.available_bytes <= info.memory.total_bytes);
    const trial = {
      prompt_tokens_per_second: 400,
      decode_tokens_per_second: 60,
      decode_16_tokens_per_second: null,
      weight_bytes: 1024,
    };
    assert.deepEqual(info.engines, [{ model: "m", engine: "wasm", reason: "quicker", trial: { wasm: trial } }]);
    assert.deepEqual(info.devices, [
      { kind: "cuda", ordinal: 0, name: "GPU 1", total_memory_bytes: 100, available_memory_bytes: 60 },
    ]);
  });

  it("report problems of the server", async () => {
    const { status, body } = await request(app, "POST", "/v1/system/doctor");
    assert.equal(status, 200);
    assert.deepEqual(diagnosisSchema.parse(JSON.parse(body)).checks, [
      { name: "disk", status: "warn", message: "little room", suggestion: "free some" },
    ]);
  });
});

describe("facts about the machine", () => {
  it("have the instruction sets of the first core", () => {
    const flags = cpuFlags("processor\t: 0\nflags\t\t: fpu avx avx2 fma\n\nprocessor\t: 1\nflags\t\t: fpu\n");
    assert.deepEqual([flags.has("avx2"), flags.has("avx512f")], [true, false]);
    assert.equal(cpuFlags("").has("avx"), false);
  });

  it("have the name of the operating system", () => {
    assert.equal(
      osName('NAME="Debian"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n'),
      "Debian GNU/Linux 12 (bookworm)",
    );
    assert.equal(osName(""), process.platform);
  });
});
