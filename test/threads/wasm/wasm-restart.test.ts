// Crash of a compute thread of the wasm engine: each of the model's requests fails with one retryable error, the model
// restarts by itself, and the server keeps running.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { InferenceService } from "../../../actors/front/inference-service.ts";
import { parseArguments } from "../../../cli/arguments.ts";
import { frontOptions } from "../../../cli/assembly/service-options.ts";
import { resolveConfig } from "../../../cli/config/config.ts";
import { createProgress } from "../../../cli/progress.ts";
import {
  type GenerateEvent,
  type GenerateRequest,
  greedySampling,
  requestDefaults,
} from "../../../engines/generation.ts";
import { createLogger } from "../../../runtime/log/log.ts";
import { endFile, mortalModule } from "../../fixtures/actors/mortal-model-place.ts";
import { tinyModel } from "../../fixtures/models/models.ts";

describe("a wasm model whose compute thread ends", () => {
  const folder = mkdtempSync(join(tmpdir(), "troupe-mortal-"));
  const end = join(folder, "end");
  let front: InferenceService;
  let model: string;

  before(async () => {
    model = await tinyModel();
    const { flags } = parseArguments(["serve", "-m", model, "--engine", "wasm", "--threads", "3", "--max-seqs", "4"]);
    const config = resolveConfig({ command: "serve", flags, environment: {}, defaultModel: model });
    const log = createLogger({ level: "fatal", format: "text" });
    front = new InferenceService({
      ...(await frontOptions(config, log, createProgress())),
      modelModule: mortalModule(end),
    });
    await front.start();
  });

  after(async () => {
    await front.stop(5000);
    rmSync(folder, { recursive: true });
  });

  function events(maxTokens: number): AsyncIterable<readonly GenerateEvent[]> {
    const request: GenerateRequest = {
      ...requestDefaults,
      model,
      client: "test",
      prompt: { kind: "text", text: "a long story about" },
      maxTokens,
      ignoreEos: true,
      sampling: greedySampling,
    };
    return front.generate(request, new AbortController().signal);
  }

  async function collect(maxTokens: number, onFirst: () => void = () => undefined): Promise<GenerateEvent[]> {
    const all: GenerateEvent[] = [];
    for await (const batch of events(maxTokens)) {
      if (all.length === 0) onFirst();
      all.push(...batch);
    }
    return all;
  }

  it("ends the running streams with one retryable error and serves again", async () => {
    const streams = [0, 1].map(() => collect(400, () => writeFileSync(endFile(end, model), "")));
    for (const all of await Promise.all(streams)) {
      const failures = all.filter((event) => event.type === "error");
      assert.equal(failures.length, 1);
      assert.ok(["model_failed", "model_loading", "peer_gone"].includes(failures[0]?.error.code ?? ""));
    }
    // The client retries, as the error recommends.
    let again = await collect(8);
    for (let i = 0; again.at(-1)?.type === "error"; i++) {
      assert.ok(i < 200, "the model comes back");
      await sleep(50);
      again = await collect(8);
    }
    assert.ok(again.length > 1);
  });
});
