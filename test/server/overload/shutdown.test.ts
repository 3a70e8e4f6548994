// Server shutdown while responses are being generated: responses that finish within the deadline are complete; the
// others end with an error in the format of their protocol.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { tinyModel } from "../../fixtures/models/models.ts";
import { checkResponseStream, parseResponseStream } from "../../fixtures/responses-checker.ts";
import { startServer } from "../../fixtures/serve.ts";

const long = { ignore_eos: true, stream: true };
const asked = {
  chat: ["chat/completions", { messages: "a", max_tokens: 12_000, ...long }],
  whole: ["chat/completions", { messages: "a", max_tokens: 12_000, ignore_eos: true }],
  responses: ["responses", { input: "a", max_output_tokens: 12_000, ...long }],
  background: ["responses", { input: "a", max_output_tokens: 12_000, background: true, ...long }],
  // The Anthropic Messages protocol has no `ignore_eos`, so `logit_bias` excludes the end-of-generation tokens instead.
  messages: [
    "messages",
    { messages: [{ role: "user", content: "a" }], max_tokens: 12_000, stream: true, logit_bias: { 1: -100, 2: -100 } },
  ],
} as const;

describe("the shutdown deadline", () => {
  it("also applies to background responses that no client waits for", async (t) => {
    const folder = mkdtempSync(join(tmpdir(), "troupe-shutdown-"));
    t.after(() => rmSync(folder, { recursive: true, force: true }));
    const flags = ["--threads", "1", "--max-model-len", "4096", "--state-dir", folder];
    const start = async () => startServer(["-m", await tinyModel(), ...flags]);
    const server = await start();
    const headers = { "content-type": "application/json", connection: "close" };
    const body = JSON.stringify({ input: "a", max_output_tokens: 400, background: true, ignore_eos: true });
    const reply = await fetch(`${server.url}/v1/responses`, { method: "POST", headers, body });
    const { id, status } = (await reply.json()) as { id: string; status: string };
    assert.equal(status, "queued");
    assert.equal((await server.stop()).code, 0);
    const next = await start();
    const kept = await (await fetch(`${next.url}/v1/responses/${id}`)).text();
    assert.match(kept, /"incomplete_details":\{"reason":"max_output_tokens"\}/);
    assert.match(kept, /"output_tokens":400/);
    await next.stop();
  });

  it("ends running responses with their protocol's final event, stores them, and the server exits with 0", async (t) => {
    const flags = ["--max-model-len", "16384", "--max-seqs", "8", "--shutdown-deadline-secs", "1"];
    const folder = mkdtempSync(join(tmpdir(), "troupe-shutdown-"));
    t.after(() => rmSync(folder, { recursive: true, force: true }));
    const start = async () =>
      startServer(["-m", await tinyModel(), "--threads", "1", "--engine", "llama", "--state-dir", folder, ...flags]);
    const server = await start();
    const answers = Object.entries(asked).map(async ([name, [path, body]]) => {
      const headers = { "content-type": "application/json" };
      const reply = await fetch(`${server.url}/v1/${path}`, { method: "POST", headers, body: JSON.stringify(body) });
      return [name, { status: reply.status, text: await reply.text() }] as const;
    });
    const limit = Date.now() + 10_000;
    const running = async () =>
      /^service_sequences_running 5$/m.test(await (await fetch(`${server.url}/metrics`)).text());
    while (!(await running())) assert.ok(Date.now() < limit, "not all run");
    const { code } = await server.stop();
    assert.equal(code, 0);
    const said = Object.fromEntries(await Promise.all(answers)) as Record<
      keyof typeof asked,
      { status: number; text: string }
    >;
    assert.match(said.chat.text, /"code":"draining"\}\}\n\ndata: \[DONE\]\n\n$/);
    assert.match(said.messages.text, /event: error\ndata: \{"type":"error".*"overloaded_error".*\n\n$/);
    assert.deepEqual([said.whole.status, JSON.parse(said.whole.text).error.code], [503, "draining"]);
    const ended = new Map<string, string>();
    for (const name of ["responses", "background"] as const) {
      const events = parseResponseStream(said[name].text);
      const { id, status } = checkResponseStream(events);
      assert.equal(events.at(-1)?.type, name === "responses" ? "response.failed" : "response.incomplete");
      ended.set(id as string, status as string);
    }
    assert.match(server.output(), /shutdown deadline passed/);
    const next = await start();
    for (const [id, status] of ended) {
      const kept = (await (await fetch(`${next.url}/v1/responses/${id}`)).json()) as { status: string };
      assert.equal(kept.status, status);
    }
    await next.stop();
  });
});
