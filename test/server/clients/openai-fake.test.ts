// The official OpenAI client with a fake inference, on every HTTP server implementation that loads here.
import assert from "node:assert/strict";
import { after, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import OpenAI from "openai";
import { failure, hello, text } from "../../fixtures/fakes/fake-inference.ts";
import { loadableEdges, startServer } from "../../fixtures/http-server.ts";

const messages = [{ role: "user" as const, content: "hi" }];

for (const edge of loadableEdges()) {
  describe(`the openai client on the ${edge} edge`, async () => {
    const server = await startServer(edge);
    after(() => server.stop());
    const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "any", maxRetries: 0 });

    it("completes a chat", async () => {
      const completion = await client.chat.completions.create({ model: "default", messages, n: 2 });
      assert.deepEqual(
        completion.choices.map((choice) => choice.message.content),
        ["Hello world", "Hello world"],
      );
      assert.equal(completion.usage?.total_tokens, 12);
      assert.match(completion._request_id!, /^[0-9a-f-]{36}$/);
    });

    it("streams a chat, with the usage chunk it knows", async () => {
      const stream = await client.chat.completions.create({
        model: "tiny",
        messages,
        stream: true,
        stream_options: { include_usage: true },
      });
      let content = "";
      let total = 0;
      for await (const chunk of stream) {
        content += chunk.choices[0]?.delta.content ?? "";
        total += chunk.usage?.total_tokens ?? 0;
      }
      assert.equal(content, "Hello world");
      assert.equal(total, 12);
    });

    it("assembles a streamed message with its helper", async () => {
      const message = await client.chat.completions.stream({ model: "tiny", messages }).finalMessage();
      assert.equal(message.content, "Hello world");
      assert.equal(message.role, "assistant");
    });

    it("cancels the generation when its stream is aborted", async () => {
      server.inference.script = () => [[text("a")], { waitMs: 60_000 }];
      const stream = await client.chat.completions.create({ model: "tiny", messages, stream: true });
      for await (const _chunk of stream) stream.controller.abort();
      for (let tries = 0; server.inference.lastRun.state !== "cancelled"; tries++) {
        assert.ok(tries < 200, "not cancelled within a second");
        await sleep(5);
      }
      server.inference.script = hello;
    });

    it("throws what the stream reports after it has begun", async () => {
      server.inference.script = () => [[text("a")], [failure("model_failed", "the engine died")]];
      const stream = await client.chat.completions.create({ model: "tiny", messages, stream: true });
      await assert.rejects(
        async () => {
          for await (const _chunk of stream);
        },
        (error: InstanceType<typeof OpenAI.APIError>) => error.code === "model_failed",
      );
      server.inference.script = hello;
    });

    it("throws its own class for each status", async () => {
      const create = (extra: object) => client.chat.completions.create({ model: "tiny", messages, ...extra });
      await assert.rejects(create({ model: "gpt-9" }), OpenAI.NotFoundError);
      await assert.rejects(create({ temperature: 3 }), (error: InstanceType<typeof OpenAI.BadRequestError>) => {
        assert.ok(error instanceof OpenAI.BadRequestError);
        assert.equal(error.param, "temperature");
        assert.equal(error.message, "400 temperature: expected a number of at most 2, got 3");
        return true;
      });
      server.inference.script = () => [[failure("queue_full")]];
      await assert.rejects(create({}), OpenAI.RateLimitError);
      server.inference.script = () => [[failure("model_failed")]];
      await assert.rejects(create({ stream: true }), OpenAI.InternalServerError);
      server.inference.script = hello;
    });

    it("tries again by itself after Retry-After", async () => {
      let calls = 0;
      server.inference.script = (request) => (calls++ === 0 ? [[failure("queue_full")]] : hello(request));
      const patient = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "any", maxRetries: 1 });
      const startedAt = performance.now();
      const completion = await patient.chat.completions.create({ model: "tiny", messages });
      assert.equal(completion.choices[0]?.message.content, "Hello world");
      assert.ok(performance.now() - startedAt > 900);
      server.inference.script = hello;
    });

    it("lists models and completes text", async () => {
      const ids = (await client.models.list()).data.map((model) => model.id);
      assert.deepEqual(ids, ["default", "tiny", "other"]);
      const completion = await client.completions.create({ model: "tiny", prompt: "Once" });
      assert.equal(completion.choices[0]?.text, "Hello world");
    });
  });
}
