// Model lifecycle under load, with real worker threads and processes: copies of a tiny model on the wasm engine.
import assert from "node:assert/strict";
import { copyFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { InferenceService, type ServiceOptions } from "../../actors/front/inference-service.ts";
import { parseArguments } from "../../cli/arguments.ts";
import { frontOptions } from "../../cli/assembly/service-options.ts";
import { resolveConfig } from "../../cli/config/config.ts";
import { createProgress } from "../../cli/progress.ts";
import { type GenerateEvent, greedySampling, requestDefaults } from "../../engines/generation.ts";
import { createLogger } from "../../runtime/log/log.ts";
import { tinyModel } from "../fixtures/models/models.ts";
import { reportedTokens, tokensOf } from "../fixtures/text/logprobs.ts";

interface Move {
  readonly model: string;
  readonly from: string;
  readonly to: string;
  readonly reason: string;
}

describe("models of the wasm engine that are loaded and unloaded", () => {
  const folder = mkdtempSync(join(tmpdir(), "troupe-lifecycle-"));
  const models = ["a", "b", "c"].map((name) => join(folder, `${name}.gguf`));
  const [a, b, c] = models as [string, string, string];
  let moves: Move[] = [];
  let front: InferenceService;

  before(async () => {
    const path = await tinyModel();
    for (const model of models) copyFileSync(path, model);
  });

  after(() => rmSync(folder, { recursive: true }));

  afterEach(async () => {
    await front.stop(5000);
  });

  /** Starts an inference service with the first `count` models. */
  async function start(count: number, changes: Partial<ServiceOptions> = {}): Promise<void> {
    const names = models.slice(0, count).flatMap((model) => ["-m", model]);
    const argv = [
      "serve",
      ...names,
      "--engine",
      "wasm",
      "--threads",
      "1",
      "--max-seqs",
      "32",
      "--max-model-len",
      "256",
    ];
    const { flags } = parseArguments(argv);
    const config = resolveConfig({ command: "serve", flags, environment: {}, defaultModel: a });
    moves = [];
    const write = (line: string) => {
      const fields = JSON.parse(line);
      if (fields.msg === "model status") moves.push(fields);
    };
    const log = createLogger({ level: "debug", format: "json" }, { write });
    front = new InferenceService({ ...(await frontOptions(config, log, createProgress())), ...changes });
    await front.start();
  }

  /** Generates `maxTokens` tokens. Returns the events of the response. */
  async function ask(model: string, maxTokens: number): Promise<GenerateEvent[]> {
    const prompt = { kind: "text", text: "a story about" } as const;
    const common = { ...requestDefaults, model, client: "test", prompt, sampling: greedySampling };
    const request = { ...common, maxTokens, ignoreEos: true };
    const all: GenerateEvent[] = [];
    for await (const events of front.generate(request, new AbortController().signal)) all.push(...events);
    return all;
  }

  async function expectWhole(model: string, maxTokens: number): Promise<void> {
    const all = await ask(model, maxTokens);
    const failure = all.find((event) => event.type === "error");
    assert.equal(failure, undefined, JSON.stringify(failure));
    const end = all.findLast((event) => event.type === "done");
    assert.equal(end?.type === "done" && end.usage.completionTokens, maxTokens);
  }

  /** Asserts that each transition of a model starts with the status in which the previous transition ended. */
  function expectConnected(): void {
    for (const model of models) {
      const own = moves.filter((move) => move.model === model);
      for (const [i, { from }] of own.entries()) if (i > 0) assert.equal(from, own[i - 1]?.to);
    }
  }

  it("cut no stream and lose no request during repeated unloads and reloads", async () => {
    await start(1);
    const done = new AbortController();
    const clients = Array.from({ length: 32 }, async () => {
      let answers = 0;
      while (!done.signal.aborted) {
        await expectWhole(a, 12);
        answers++;
      }
      return answers;
    });
    for (let i = 0; i < 10; i++) {
      const { status, error } = i % 2 === 0 ? await front.unload(a) : await front.reload("default");
      assert.deepEqual([["unloaded", "loaded", "reloading"].includes(status), error], [true, null]);
      await sleep(20);
    }
    done.abort();
    for (const answers of await Promise.all(clients)) assert.ok(answers > 0);
    expectConnected();
    assert.ok(moves.filter(({ reason }) => reason === "unload").length === 5);
    assert.deepEqual(front.statusOf("default"), { id: a, status: "loaded", error: null });
    const statistics = (await front.engineMetrics()).find(({ name }) => name.includes("tokens_processed"));
    assert.ok(statistics, "the statistics outlive the places");
  });

  it("give the token texts for logprobs while they are loaded", async () => {
    await start(1);
    const prompt = { kind: "text", text: "a story about" } as const;
    const sampling = { ...greedySampling, topLogprobs: 3 };
    const common = { ...requestDefaults, model: a, client: "test", prompt, sampling, promptLogprobs: 1 };
    const request = { ...common, maxTokens: 20, ignoreEos: true };
    let [told, said, reported] = ["", "", ""];
    for await (const events of front.generate(request, new AbortController().signal)) {
      const texts = front.tokenTexts(a);
      for (const event of events) {
        if (event.type === "prompt")
          told += tokensOf(event.logprobs, texts)
            .map(({ token }) => token)
            .join("");
        if (event.type !== "text") continue;
        said += event.text;
        const bytes = reportedTokens([event], texts).flatMap(({ bytes }) => bytes);
        reported += Buffer.from(bytes).toString("latin1");
      }
    }
    assert.ok(told.endsWith(prompt.text));
    assert.equal(Buffer.from(reported, "latin1").toString(), said);
    const texts = front.tokenTexts(a);
    await front.unload(a);
    assert.throws(() => front.tokenTexts(a), { code: "model_failed" });
    // A response in progress still uses the token texts.
    assert.equal(typeof texts.tokenText(1), "string");
    await front.reload(a);
    assert.equal(front.tokenTexts(a).tokenText(5), texts.tokenText(5));
  });

  it("evict the least recently used model", async () => {
    await start(3, { maxLoadedModels: 2 });
    const statuses = () => front.models().map(({ status }) => status);
    assert.deepEqual(statuses(), ["loaded", "loaded", "unloaded"]);
    await expectWhole(a, 4);
    await expectWhole(c, 4);
    assert.deepEqual(statuses(), ["loaded", "unloaded", "loaded"]);
    // Sends concurrent requests to all models.
    await Promise.all(Array.from({ length: 24 }, (_, i) => expectWhole(models[i % 3] as string, 8)));
    assert.equal(statuses().filter((status) => status === "loaded").length, 2);
    expectConnected();
  });

  it("are unloaded when idle, and loaded for a request", async () => {
    await start(2, { idleUnloadMs: 100 });
    while (front.statusOf(b).status !== "unloaded") await sleep(10);
    await expectWhole(b, 4);
    assert.ok(moves.some(({ model, reason }) => model === b && reason === "request"));
  });
});
