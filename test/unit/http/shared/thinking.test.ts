import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { TemplateArguments } from "../../../../engines/generation.ts";
import { createApp } from "../../../../http/app.ts";
import { FakeInference } from "../../../fixtures/fakes/fake-inference.ts";
import { request } from "../../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../../fixtures/http-server.ts";

const inference = new FakeInference();
const app = createApp({ inference, log: recordingLog(), config: { accessLog: false } });
const messages = [{ role: "user", content: "hi" }];

/** Request body with a reasoning effort, by path. */
const protocols: Readonly<Record<string, (effort: string) => object>> = {
  "/v1/chat/completions": (effort) => ({ messages, reasoning_effort: effort }),
  "/v1/responses": (effort) => ({ input: "hi", reasoning: { effort } }),
  "/v1/messages": (effort) => ({ messages, max_tokens: 5, reasoning_effort: effort }),
};

const off: TemplateArguments = { enableThinking: false, reasoningEffort: "off" };
const on = (reasoningEffort: string): TemplateArguments => ({ enableThinking: true, reasoningEffort });
const efforts: Readonly<Record<string, TemplateArguments>> = {
  off,
  none: off,
  minimal: on("minimal"),
  low: on("low"),
  medium: on("medium"),
  high: on("high"),
  xhigh: on("xhigh"),
  max: on("xhigh"),
};

for (const [path, body] of Object.entries(protocols)) {
  describe(`an effort at POST ${path}`, () => {
    for (const [effort, expected] of Object.entries(efforts)) {
      it(`may be ${effort}`, async () => {
        const reply = await request(app, "POST", path, { body: body(effort) });
        assert.equal(reply.status, 200, reply.body);
        const { prompt } = inference.lastRun.request;
        assert.deepEqual(prompt.kind === "chat" && prompt.templateArguments, expected);
      });
    }

    it("may be nothing else", async () => {
      const { body: text } = await request(app, "POST", path, { body: body("some") });
      assert.match(text, /effort: expected one of .*, got \\"some\\"/);
    });
  });
}
