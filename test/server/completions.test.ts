// Text completions, continued messages and tokenization with the real command and a real model: their results are consistent
// with each other.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import OpenAI from "openai";
import { realModel } from "../fixtures/models/models.ts";
import { type RunningServer, startServer } from "../fixtures/serve.ts";

/** Response fields that these tests read. */
interface Reply {
  readonly tokens: number[];
  readonly count: number;
  readonly token_strs: string[];
  readonly content: unknown;
}

describe("a server that streams completions", () => {
  let server: RunningServer;
  let client: OpenAI;
  before(async () => {
    const flags = ["--allow-completions-stream", "--max-model-len", "1024", "--max-seqs", "4"];
    server = await startServer(["-m", (await realModel()).path, ...flags]);
    client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "any", maxRetries: 0 });
  });
  after(() => server.stop());

  const greedy = { model: "default", temperature: 0, max_tokens: 12 };
  const user = { role: "user" as const, content: "Name three colours." };
  const begun = { role: "assistant" as const, content: "The three colours are red, " };

  async function post(path: string, body: object): Promise<Reply> {
    const headers = { "content-type": "application/json" };
    const reply = await fetch(`${server.url}${path}`, { method: "POST", headers, body: JSON.stringify(body) });
    const text = await reply.text();
    assert.equal(reply.status, 200, text);
    return JSON.parse(text);
  }

  /** Tokenizes the messages and completes the tokens as a text prompt. Returns the generated text. */
  async function continued(): Promise<string> {
    const { tokens } = await post("/tokenize", { messages: [user, begun] });
    const { content } = await post("/detokenize", { tokens });
    assert.ok(String(content).endsWith(begun.content), String(content));
    const { choices } = await client.completions.create({ ...greedy, prompt: tokens });
    return choices[0]?.text ?? "";
  }

  it("computes only the prompt if the limit is 0: for its logprobs, or the prefix cache", async () => {
    const prompt = `${"The sea was calm and the sky was clear that day. ".repeat(8)}The capital of France is`;
    const scored = { model: "default", temperature: 0, prompt, echo: true, logprobs: 1 };
    const { choices, usage } = await client.completions.create({ ...scored, max_tokens: 0 });
    const [choice] = choices;
    assert.deepEqual([choice?.text, choice?.finish_reason, usage?.completion_tokens], [prompt, "length", 0]);
    const longer = await client.completions.create({ ...scored, max_tokens: 1 });
    assert.equal(choice?.logprobs?.tokens?.length, usage?.prompt_tokens);
    assert.deepEqual(longer.choices[0]?.logprobs?.tokens?.slice(0, -1), choice?.logprobs?.tokens);
    assert.deepEqual(longer.choices[0]?.logprobs?.token_logprobs?.slice(0, -1), choice?.logprobs?.token_logprobs);
    let streamed = "";
    for await (const chunk of await client.completions.create({ ...scored, max_tokens: 0, stream: true })) {
      streamed += chunk.choices[0]?.text ?? "";
    }
    assert.equal(streamed, prompt);
    // The second choice finds the prompt in the KV cache, so it is ready before the first has computed the logprobs.
    const tokens = [0, 0];
    for await (const chunk of await client.completions.create({ ...scored, max_tokens: 2, n: 2, stream: true })) {
      for (const { index, logprobs } of chunk.choices)
        tokens[index] = (tokens[index] ?? 0) + (logprobs?.tokens?.length ?? 0);
    }
    const most = (usage?.prompt_tokens ?? 0) + 2;
    assert.ok(
      tokens.every((count) => count > most - 2 && count <= most),
      `${tokens} tokens with logprobs, of ${most}`,
    );
    const other = prompt.replaceAll("sea", "lake");
    const warmed = await client.completions.create({
      model: "default",
      prompt: other,
      ...{ n_predict: 0 },
      max_tokens: null,
    });
    assert.deepEqual([warmed.choices[0]?.text, warmed.usage?.completion_tokens], ["", 0]);
    const next = await client.completions.create({ model: "default", prompt: `${other} the`, max_tokens: 1 });
    const cached = next.usage?.prompt_tokens_details?.cached_tokens ?? 0;
    assert.ok(cached >= (warmed.usage?.prompt_tokens ?? 0) - 32, `${cached} tokens cached`);
  });

  it("continues an assistant's message in chat, messages and responses, as a completion of the same tokens", async () => {
    const expected = await continued();
    assert.notEqual(expected, "");
    const messages = [user, begun];
    const chat = await client.chat.completions.create({ ...greedy, messages });
    assert.equal(chat.choices[0]?.message.content, expected);
    let streamed = "";
    for await (const { choices } of await client.chat.completions.create({ ...greedy, messages, stream: true })) {
      streamed += choices[0]?.delta.content ?? "";
    }
    assert.equal(streamed, expected);
    const message = await post("/v1/messages", { ...greedy, messages });
    assert.deepEqual(message.content, [{ type: "text", text: expected }]);
    const response = await client.responses.create({
      ...greedy,
      max_tokens: undefined,
      max_output_tokens: 12,
      input: messages,
    } as never);
    assert.equal((response as { output_text: string }).output_text, expected);
  });

  it("completes a list of prompts like separate requests, streamed or not", async () => {
    const prompts = ["Once upon a time", "The capital of France", "def main():"];
    const alone: string[] = [];
    for (const prompt of prompts) {
      alone.push((await client.completions.create({ ...greedy, prompt })).choices[0]?.text ?? "");
    }
    const { choices, usage } = await client.completions.create({ ...greedy, prompt: prompts });
    assert.deepEqual(
      choices.map(({ text, index }) => [index, text]),
      alone.map((text, index) => [index, text]),
    );
    const texts = prompts.map(() => "");
    let total = 0;
    for await (const chunk of await client.completions.create({ ...greedy, prompt: prompts, stream: true })) {
      for (const { index, text } of chunk.choices) texts[index] += text;
      total = chunk.usage?.total_tokens ?? total;
    }
    assert.deepEqual(texts, alone);
    assert.equal(total, usage?.total_tokens);
  });

  it("converts tokens back to text", async () => {
    const text = "Grüße, 世界! <|im_end|> 😀  x";
    const { tokens } = await post("/tokenize", { content: text, with_pieces: false, parse_special: false });
    assert.equal((await post("/detokenize", { tokens })).content, text);
    const whole = await post("/tokenize", { prompt: text, return_token_strs: true });
    assert.equal(whole.count, whole.tokens.length);
    assert.equal(whole.token_strs.length, whole.count);
  });

  it("rejects unknown tokens, and documents to score, with a specific error", async () => {
    await assert.rejects(
      client.completions.create({ ...greedy, prompt: [99_999_999] }),
      /prompt.*99999999|99999999.*|expected tokens of model/,
    );
    const body = JSON.stringify({ query: "q", documents: ["d"] });
    const headers = { "content-type": "application/json" };
    const reply = await fetch(`${server.url}/v1/rerank`, { method: "POST", headers, body });
    const { error } = (await reply.json()) as { error: { code: string; message: string } };
    assert.equal(error.code, "unsupported");
    assert.match(error.message, /does not score documents; name a reranker/);
  });
});
