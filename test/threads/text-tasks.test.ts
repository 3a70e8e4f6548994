// Text tasks on real text workers, which process client input. Input that takes forever delays other clients for no longer than
// the quick limit.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { movedWith, sealContent } from "../../actors/api/sealed-content.ts";
import { textWorkerModule } from "../../actors/placement.ts";
import type { TextSource } from "../../actors/text-tasks/text-model.ts";
import { TextTasks } from "../../actors/text-tasks/text-tasks.ts";
import { readHeadBytes } from "../../engines/files/gguf/reader.ts";
import { greedySampling, type OpenRequest, requestDefaults } from "../../engines/generation.ts";
import { TaskPool } from "../../runtime/task/task-pool.ts";
import { createFakeEngine } from "../fixtures/fakes/fake-engine.ts";
import { inlineTextTasks } from "../fixtures/fakes/inline-tasks.ts";
import { chatMl, writeTinyModel } from "../fixtures/models/tiny-gguf.ts";

const quickMs = 200;
const limitSeconds = 2;
const endless =
  "{% for a in range(100000) %}{% for b in range(100000) %}{% for c in range(100000) %}{% endfor %}{% endfor %}{% endfor %}";

const folder = mkdtempSync(join(tmpdir(), "text-tasks-test-"));
const path = join(folder, "tiny.gguf");
const { signal } = new AbortController();

function asks(content: string, changes: Partial<OpenRequest> = {}): OpenRequest {
  return {
    ...requestDefaults,
    model: "tiny",
    client: "a",
    prompt: { kind: "chat", messages: [{ role: "user", content }], templateArguments: {} },
    sampling: greedySampling,
    ...changes,
  };
}

async function source(template: string | null = null): Promise<TextSource> {
  const head = await readHeadBytes(path);
  const { capacity, capabilities } = createFakeEngine({ sequenceTokens: 512 });
  const templateCapabilities = { usual: null, withTools: null };
  const ready = { card: { vocabSize: 512 }, capacity, capabilities, probes: null };
  return { id: "tiny", head, template, templateCapabilities, ready };
}

/** Returns the longest wait of another client's small requests while `work` runs. */
async function longestWait(tasks: TextTasks, key: string, work: Promise<unknown>): Promise<number> {
  let isOver = false;
  void work
    .finally(() => {
      isOver = true;
    })
    .catch(() => {});
  let longest = 0;
  while (!isOver) {
    const start = performance.now();
    await tasks.prepare(key, asks("hi", { client: "b" }), signal);
    longest = Math.max(longest, performance.now() - start);
  }
  return longest;
}

describe("text tasks on text workers", () => {
  let pool: TaskPool;
  let tasks: TextTasks;
  let key = "";

  before(async () => {
    await writeTinyModel(path, { seed: 1, layers: 1 });
    pool = new TaskPool({
      name: "text",
      module: textWorkerModule,
      init: { translators: new URL("../../http/shared/body-translators.js", import.meta.url).href },
      quickWorkers: 1,
      slowWorkers: 2,
      quickMs,
      limitMs: limitSeconds * 1000,
      heapMiB: 512,
      maxQueued: 100,
      loadLimitMs: 2000,
      maxQueuedName: "text_task_queue",
    });
    tasks = new TextTasks(pool, { seconds: limitSeconds, loadSeconds: limitSeconds, heapMiB: 512 });
    key = await tasks.open(await source());
  });
  after(() => {
    pool.close();
    rmSync(folder, { recursive: true, force: true });
  });

  it("prepare a prompt as the same code does without workers", async () => {
    const inline = inlineTextTasks();
    const here = await inline.open(await source());
    const request = asks("Tell me of the sea.", {
      grammar: { kind: "json_schema", schema: { type: "object" }, field: "response_format" },
    });
    assert.deepEqual(await tasks.prepare(key, request, signal), await inline.prepare(here, request, signal));
    assert.equal(
      await tasks.countTokens(key, request, signal),
      (await inline.prepare(here, request, signal)).tokens.length,
    );
  });

  it("read a body, and deserialise its content again", async () => {
    const said = "word ".repeat(20);
    const body = new TextEncoder().encode(JSON.stringify({ messages: said, stream: true, store: true }));
    const { value, movable } = await tasks.translate(
      { client: "a", protocol: "chat", body, parameters: { parameters: null, unknownFields: "ignore" } },
      signal,
    );
    const translated = value as {
      readonly facts: { readonly isStreamed: boolean };
      readonly asked: OpenRequest;
      readonly ignored: readonly { readonly path: string }[];
    };
    assert.equal(body.length, 0, "the bytes have moved");
    assert.deepEqual(movable, movedWith(translated.asked));
    assert.ok(translated.facts.isStreamed);
    assert.deepEqual(
      translated.ignored.map((field) => field.path),
      ["store"],
    );
    const request = { ...translated.asked, model: "tiny", client: "a", adapter: null, series: null, receivedAt: 0 };
    const { tokens } = await tasks.prepare(key, request, signal);
    assert.deepEqual(tokens, (await tasks.prepare(key, asks(said), signal)).tokens);
  });

  it("reject an invalid body with the name of the field", async () => {
    const body = new TextEncoder().encode(JSON.stringify({ messages: "hi", temperature: "hot" }));
    const reading = tasks.translate(
      { client: "a", protocol: "chat", body, parameters: { parameters: null, unknownFields: "ignore" } },
      signal,
    );
    await assert.rejects(reading, { code: "invalid_value", param: "temperature" });
  });

  it("refuse 40 MB of arguments or of text without rendering them", async () => {
    const long = "a".repeat(40 * 2 ** 20);
    const toolCalls = [{ id: "1", name: "f", arguments: JSON.stringify({ long }) }];
    const messages = [
      { role: "user", content: "hi" },
      { role: "assistant", content: "", toolCalls },
    ];
    const calling = { kind: "chat", messages, templateArguments: {} } as const;
    for (const request of [asks("", { prompt: calling }), asks(long), asks("\ue000".repeat(2 ** 24))]) {
      // The content is serialised (sealed), as the server does for a body of this length.
      const sealed = { ...request, prompt: sealContent(request as OpenRequest) };
      const preparing = assert.rejects(tasks.prepare(key, sealed, signal), { code: "context_length_exceeded" });
      const waited = await longestWait(tasks, key, preparing);
      await preparing;
      assert.ok(waited < 3 * quickMs, `others waited ${waited} ms`);
    }
  });

  it("end a template that never returns, remember it, and serve others meanwhile", async () => {
    const bomb = await tasks.open(await source(`{% if 'bomb' in messages[0].content %}${endless}{% endif %}${chatMl}`));
    const start = performance.now();
    const refused = assert.rejects(tasks.prepare(bomb, asks("bomb", { client: "x" }), signal), {
      code: "unsupported",
      message: /prompt takes more than 2 s \(text_task_secs\)/,
    });
    const waited = await longestWait(tasks, key, refused);
    await refused;
    assert.ok(waited < 3 * quickMs, `others waited ${waited} ms`);
    assert.ok(performance.now() - start < 3 * limitSeconds * 1000);
    const again = performance.now();
    await assert.rejects(tasks.prepare(bomb, asks("bomb", { client: "y" }), signal), { code: "unsupported" });
    assert.ok(performance.now() - again < quickMs, "refused at once the second time");
    assert.ok((await tasks.prepare(bomb, asks("hi", { client: "z" }), signal)).tokens.length > 0);
    assert.equal(tasks.statistics.ended.time, 1);
    assert.ok(tasks.statistics.slow >= 1);
    tasks.close(bomb);
  });

  it("refuse a model whose template never returns, and serve the others meanwhile", async () => {
    await sleep(1500); // a new worker replaces the one that ended
    const chatTemplate = join(folder, "endless.jinja");
    writeFileSync(chatTemplate, endless);
    const reading = assert.rejects(tasks.read({ id: "bad", path, chatTemplate, jinjaExplicit: null }), {
      code: "model_file_invalid",
      message: /test-rendering its chat template takes more than 2 s/,
    });
    const waited = await longestWait(tasks, key, reading);
    await reading;
    assert.ok(waited < 3 * quickMs, `others waited ${waited} ms`);
  });

  it("check outputs against the requested constraint", async () => {
    const schema = { type: "object", properties: { list: { type: "array", uniqueItems: true } } };
    const grammar = { kind: "json_schema", schema, field: "response_format" } as const;
    const { answer } = await tasks.prepare(key, asks("hi", { grammar }), signal);
    assert.ok(answer.checks?.content);
    assert.equal(await tasks.check(answer.checks, '{"list":[1,2]}', null, "a"), null);
    assert.match((await tasks.check(answer.checks, '{"list":[1,1]}', null, "a")) ?? "", /duplicate/);
  });

  it("read a model once: a worker that starts later needs no file", async () => {
    const bomb = await tasks.open(await source(`{% if 'bomb' in messages[0].content %}${endless}{% endif %}${chatMl}`));
    rmSync(path);
    await assert.rejects(source(), { code: "model_file_invalid" });
    // Each request makes a worker exit, and a new worker replaces it.
    const bombs = ["bomb 1", "bomb 2"].map((text) => tasks.prepare(bomb, asks(text, { client: text }), signal));
    for (const one of bombs) await assert.rejects(one, { code: "unsupported" });
    for (let i = 0; i < 5; i++) assert.ok((await tasks.prepare(key, asks("hi"), signal)).tokens.length > 0);
  });
});
