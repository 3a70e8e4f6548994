// Sampling parameters that no other test covers, and embeddings, against the real command with the real default model.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import OpenAI from "openai";
import { realModel } from "../fixtures/models/models.ts";
import { type RunningServer, startServer } from "../fixtures/serve.ts";

const flags = ["--max-model-len", "512", "--max-seqs", "8", "--max-prefill-chunk-tokens", "32"];
const sea = "The sea is wide and deep, and the old man who lived beside it knew all of its colours by heart.";

interface LegacyLogprobs {
  readonly tokens: readonly string[];
  readonly token_logprobs: readonly (number | null)[];
  readonly top_logprobs: readonly (Readonly<Record<string, number>> | null)[];
  readonly text_offset: readonly number[];
}

interface Reply {
  readonly status: number;
  // biome-ignore lint/suspicious/noExplicitAny: each test says what it expects of the JSON
  readonly body: any;
}

let server: RunningServer;
let client: OpenAI;

before(async () => {
  server = await startServer(["-m", (await realModel()).path, ...flags]);
  client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "any", maxRetries: 0 });
});
after(async () => {
  await server.stop();
});

async function post(path: string, body: object): Promise<Reply> {
  const headers = { "content-type": "application/json" };
  const reply = await fetch(server.url + path, { method: "POST", headers, body: JSON.stringify(body) });
  return { status: reply.status, body: await reply.json() };
}

async function complete(body: object) {
  const reply = await post("/v1/completions", { prompt: sea, max_tokens: 8, temperature: 0, ...body });
  assert.equal(reply.status, 200, JSON.stringify(reply.body));
  return reply.body;
}

const mean = ({ token_logprobs: logprobs }: LegacyLogprobs) =>
  logprobs.reduce<number>((sum, logprob) => sum + (logprob ?? 0), 0) / logprobs.length;

describe("text completions", () => {
  it("echo the prompt with the logprobs of its tokens, at the offsets where they stand", async () => {
    const { choices, usage } = await complete({ echo: true, logprobs: 2 });
    const [{ text, logprobs }] = choices as [{ text: string; logprobs: LegacyLogprobs }];
    assert.ok(text.startsWith(sea));
    assert.equal(logprobs.tokens.length, usage.prompt_tokens + usage.completion_tokens);
    assert.equal(logprobs.tokens.join(""), text);
    logprobs.tokens.forEach((token, i) => {
      assert.ok(text.startsWith(token, logprobs.text_offset[i]), `token ${i} at ${logprobs.text_offset[i]}`);
    });
    assert.deepEqual([logprobs.token_logprobs[0], logprobs.top_logprobs[0]], [null, null]);
    for (const [i, logprob] of logprobs.token_logprobs.entries()) {
      if (i === 0) continue;
      assert.ok(logprob !== null && logprob <= 0);
      const top = Object.values(logprobs.top_logprobs[i] ?? {});
      assert.ok(top.length >= 2 && top.length <= 3 && Math.max(...top) >= logprob);
    }
  });

  it("give a token the same logprob in the prompt as in the output", async () => {
    const { choices } = await complete({ max_tokens: 1, logprobs: 0 });
    const [{ text, logprobs }] = choices as [{ text: string; logprobs: LegacyLogprobs }];
    const again = await complete({ prompt: sea + text, max_tokens: 1, logprobs: 0, echo: true });
    const at = again.usage.prompt_tokens - 1;
    assert.equal(again.choices[0].logprobs.tokens[at], text);
    const difference = again.choices[0].logprobs.token_logprobs[at] - (logprobs.token_logprobs[0] ?? 0);
    assert.ok(Math.abs(difference) < 0.02, String(difference));
  });

  it("return the most likely of best_of candidates, as a request for all of them shows", async () => {
    const sampled = { temperature: 1, seed: 11, logprobs: 0, ignore_eos: true };
    const all = (await complete({ ...sampled, n: 4 })).choices as { text: string; logprobs: LegacyLogprobs }[];
    const best = await complete({ ...sampled, best_of: 4 });
    const means = all.map(({ logprobs }) => mean(logprobs));
    const likeliest = means.indexOf(Math.max(...means));
    assert.equal(best.choices.length, 1);
    assert.equal(best.choices[0].text, all[likeliest]?.text);
    assert.ok(best.usage.completion_tokens > 8, "all candidates count");
    const ranked = await complete({ ...sampled, n: 3, best_of: 4 });
    const rankedMeans = ranked.choices.map(({ logprobs }: { logprobs: LegacyLogprobs }) => mean(logprobs));
    assert.deepEqual(
      rankedMeans,
      rankedMeans.toSorted((a: number, b: number) => b - a),
    );
    const silent = await complete({ temperature: 1, seed: 11, best_of: 2 });
    assert.equal(silent.choices[0].logprobs, null);
  });

  it("accept a priority", async () => {
    assert.equal((await complete({ priority: -1000 })).choices.length, 1);
  });

  it("continue after the end of the text with ignore_eos", async () => {
    const { usage } = await complete({ ignore_eos: true, max_tokens: 40 });
    assert.equal(usage.completion_tokens, 40);
  });

  it("end at a stop token, but not before the minimum number of tokens", async () => {
    const {
      choices: [{ text }],
    } = await complete({ max_tokens: 16, ignore_eos: true });
    const { tokens } = (await (
      await fetch(`${server.url}/tokenize`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ content: text }),
      })
    ).json()) as { tokens: number[] };
    const stop_token_ids = [tokens[5]!];
    const at = tokens.indexOf(tokens[5]!);
    const [ended, held] = [
      await complete({ max_tokens: 16, ignore_eos: true, stop_token_ids }),
      await complete({ max_tokens: 16, min_tokens: 12, ignore_eos: true, stop_token_ids }),
    ];
    assert.deepEqual([ended.choices[0].finish_reason, ended.usage.completion_tokens], ["stop", at]);
    assert.ok(text.startsWith(ended.choices[0].text) && ended.choices[0].text.length < text.length);
    assert.ok(held.usage.completion_tokens >= 12, JSON.stringify(held));
    const stop = text.slice(4, 8);
    assert.equal(
      (await complete({ max_tokens: 16, ignore_eos: true, stop })).choices[0].text,
      text.slice(0, text.indexOf(stop)),
    );
    const whole = await complete({ max_tokens: 16, min_tokens: 16, ignore_eos: true, stop });
    assert.equal(whole.choices[0].text, text);
    const unknown = await post("/v1/completions", { prompt: sea, stop_token_ids: [10_000_000] });
    assert.deepEqual([unknown.status, unknown.body.error.param], [400, "stop_token_ids"]);
  });

  it("have at least the minimum number of tokens, unless their grammar ends", async () => {
    const short = { prompt: "Q: Is the sky blue? Answer yes or no.\nA:", max_tokens: 24, min_tokens: 24 };
    for (const stream of [{}, { temperature: 1, seed: 3 }]) {
      const { usage, choices } = await complete({ ...short, ...stream });
      assert.deepEqual([usage.completion_tokens, choices[0].finish_reason], [24, "length"]);
    }
    const {
      choices: [choice],
    } = await complete({ ...short, guided_regex: "yes|no" });
    assert.equal(choice.finish_reason, "stop");
    assert.match(choice.text, /^(yes|no)$/);
  });

  it("report the number of cached prompt tokens", async () => {
    const prompt = `Once more: ${sea.repeat(3)}`;
    const first = await complete({ prompt });
    const second = await complete({ prompt });
    const cached = second.usage.prompt_tokens_details.cached_tokens;
    assert.equal(first.usage.prompt_tokens_details.cached_tokens < cached, true);
    assert.ok(cached < second.usage.prompt_tokens);
    assert.equal(second.choices[0].text, first.choices[0].text);
  });
});

describe("chat completions", () => {
  const messages = [{ role: "user" as const, content: "Give me a list." }];

  it("accept a reasoning budget if the model does not reason", async () => {
    const { status } = await post("/v1/chat/completions", { messages, reasoning_budget: 10, max_tokens: 4 });
    assert.equal(status, 200);
  });

  it("report a complete output that violates its schema as a refusal in OpenAI's field", async () => {
    // The grammar does not compare array entries at different positions.
    const a = { const: "a" };
    const schema = { type: "array", prefixItems: [a, a], items: false, minItems: 2, uniqueItems: true };
    const response_format = { type: "json_schema", json_schema: { name: "two", schema } };
    const { status, body } = await post("/v1/chat/completions", { messages, response_format, temperature: 0 });
    assert.equal(status, 200, JSON.stringify(body));
    const [{ message, finish_reason }] = body.choices;
    assert.deepEqual(JSON.parse(message.content), ["a", "a"]);
    assert.equal(finish_reason, "stop");
    assert.match(message.refusal, /unique|duplicate/i);
  });
});

describe("embeddings", () => {
  const embed = async (input: OpenAI.EmbeddingCreateParams["input"], format: "float" | "base64" = "float") => {
    const answer = await client.embeddings.create({ model: "default", input, encoding_format: format });
    return { ...answer, vectors: answer.data.map(({ embedding }) => embedding) };
  };
  const dot = (a: readonly number[], b: readonly number[]) => a.reduce((sum, value, i) => sum + value * (b[i] ?? 0), 0);

  it("have length 1, one per input, in order", async () => {
    const { data, vectors, usage } = await embed([sea, "A dog barks.", sea]);
    assert.deepEqual(
      data.map(({ index }) => index),
      [0, 1, 2],
    );
    for (const vector of vectors) assert.ok(Math.abs(dot(vector, vector) - 1) < 1e-4);
    assert.ok(dot(vectors[0] ?? [], vectors[2] ?? []) > 0.999);
    assert.ok(dot(vectors[0] ?? [], vectors[1] ?? []) < 0.999);
    assert.ok(usage.prompt_tokens > 30 && usage.total_tokens === usage.prompt_tokens);
  });

  it("are the same as floats and as base64", async () => {
    const floats = await embed("A dog barks.");
    const { body } = await post("/v1/embeddings", { input: "A dog barks.", encoding_format: "base64" });
    const bytes = Buffer.from(body.data[0].embedding, "base64");
    const decoded = Array.from({ length: bytes.length / 4 }, (_, i) => bytes.readFloatLE(4 * i));
    assert.deepEqual(decoded, floats.vectors[0]);
  });

  it("are the same for many inputs together as for each input alone", async () => {
    const inputs = Array.from({ length: 20 }, (_, i) => `${i} ${sea}`);
    const together = await embed(inputs);
    const alone = await embed(inputs[13] ?? "");
    assert.ok(dot(together.vectors[13] ?? [], alone.vectors[0] ?? []) > 0.999);
  });

  it("accept tokens, and reject tokens that do not exist", async () => {
    const { vectors } = await embed([
      [100, 200],
      [300, 400, 500],
    ]);
    assert.equal(vectors.length, 2);
    const { status, body } = await post("/v1/embeddings", { input: [[100], [10_000_000]] });
    assert.deepEqual([status, body.error.param], [400, "input"]);
  });

  it("name both lengths if an input is too long, and keep its start if it may be truncated", async () => {
    const input = "word ".repeat(600);
    const { status, body } = await post("/v1/embeddings", { input });
    assert.deepEqual([status, body.error.code], [400, "context_length_exceeded"]);
    assert.match(body.error.message, /maximum context length is 512 tokens\. However, you requested 60\d tokens/);
    const cut = await post("/v1/embeddings", { input, truncate_sequence: true });
    assert.equal(cut.body.usage.prompt_tokens, 512);
  });

  it("are computed while responses are generated, and cancelled when the client disconnects", async () => {
    const leaving = new AbortController();
    const inputs = Array.from({ length: 200 }, () => sea);
    const given = fetch(`${server.url}/v1/embeddings`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ input: inputs }),
      signal: leaving.signal,
    });
    const text = await complete({ max_tokens: 4 });
    assert.equal(text.usage.completion_tokens, 4);
    leaving.abort();
    await assert.rejects(given, { name: "AbortError" });
    const started = performance.now();
    await embed("A dog barks.");
    assert.ok(performance.now() - started < 5000, "nobody computes what nobody reads");
  });
});
