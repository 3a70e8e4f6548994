// Operations without stored state: chats, embeddings, structured output, adapters.
import { setTimeout as sleep } from "node:timers/promises";
import { answered, Call } from "../client.ts";
import type { Work } from "./operation.ts";
import { type ChatChoice, greedy, maxTokens, prompts } from "./texts.ts";

/** Streams a chat, and compares its tokens with the reference tokens and its usage with the number of received tokens. */
export async function chatStream(work: Work, model = "tiny"): Promise<void> {
  const { server, dice, ledger, references } = work;
  const prompt = dice.pick(prompts);
  const count = dice.int(1, maxTokens);
  const leavesAfter = dice.chance(0.15) ? dice.int(0, 400) : null;
  const body = {
    model,
    messages: [{ role: "user", content: prompt }],
    ...greedy(count),
    logprobs: true,
    stream: true,
    stream_options: { include_usage: true },
  };
  const call = new Call(`${server.url}/v1/chat/completions`, { body });
  if (leavesAfter !== null) void sleep(leavesAfter).then(() => call.leave());
  const ending = await work.ended(call);
  if (!(await ledger.judge(work.what, call, server, ending)) && call.events.length === 0) return;
  const expected = references.tokens(model, prompt);
  let received = 0;
  let finish: string | null = null;
  let usage: number | null = null;
  let error: string | null = null;
  for (const { data, text } of call.events) {
    const failure = data.error as { code?: string } | undefined;
    if (failure !== undefined) {
      error = failure.code ?? "";
      ledger.judgeError(work.what, error, text.slice(0, 300));
    }
    const choice = (data.choices as ChatChoice[] | undefined)?.[0];
    for (const { bytes } of choice?.logprobs?.content ?? []) {
      if (!expected[received]?.equals(Buffer.from(bytes)))
        ledger.broken(`${work.what}: token ${received} is not that of the reference`);
      received++;
    }
    if (choice?.finish_reason) finish = choice.finish_reason;
    const counted = (data.usage as { completion_tokens?: number } | null)?.completion_tokens;
    if (counted !== undefined) usage = counted;
  }
  if (ending !== "whole" || call.status !== 200) return;
  if (!call.isDone) ledger.broken(`${work.what}: the stream ended without [DONE]`);
  if (error !== null) return;
  ledger.count("chat");
  if (finish !== "length" || received !== count || usage !== count) {
    ledger.broken(
      `${work.what}: expected ${count} tokens and finish_reason length, got ${received} tokens, usage ${usage}, ${finish}`,
    );
  }
}

export const chatWithAdapter = (work: Work): Promise<void> => chatStream(work, "code");

export async function chatWhole({ server, dice, ledger, references, what, limitMs }: Work): Promise<void> {
  const prompt = dice.pick(prompts);
  const count = dice.int(1, maxTokens);
  const body = { model: "tiny", messages: [{ role: "user", content: prompt }], ...greedy(count) };
  const call = await answered(`${server.url}/v1/chat/completions`, { body }, limitMs);
  if (!(await ledger.judge(what, call, server, await stuckIsBroken(call, what, ledger)))) return;
  const { choices, usage } = call.json as unknown as { choices: ChatChoice[]; usage: { completion_tokens: number } };
  const expected = references.text("tiny", prompt, count);
  if (choices[0]?.message?.content !== expected) ledger.broken(`${what}: the text is not the reference`);
  if (usage.completion_tokens !== count)
    ledger.broken(`${what}: expected usage ${count}, got ${usage.completion_tokens}`);
  ledger.count("chat");
}

export async function embeddings({ server, dice, ledger, what, limitMs, shared }: Work): Promise<void> {
  const input = dice.pick(["the sea", "light house keeper", "cat and star"]);
  const call = await answered(`${server.url}/v1/embeddings`, { body: { model: "encoder", input } }, limitMs);
  if (!(await ledger.judge(what, call, server, await stuckIsBroken(call, what, ledger)))) return;
  const { data } = call.json as unknown as { data: { embedding: number[] }[] };
  const text = JSON.stringify(data[0]?.embedding.map((value) => value.toFixed(4)));
  const earlier = shared.embeddings.get(input) ?? text;
  if (text !== earlier || data.length !== 1) ledger.broken(`${what}: the embedding of "${input}" has changed`);
  shared.embeddings.set(input, earlier);
  ledger.count("embedding");
}

export async function structured({ server, dice, ledger, what, limitMs }: Work): Promise<void> {
  const kinds = dice.pick([
    ["x", "y"],
    ["red", "green", "blue"],
  ]);
  const schema = {
    type: "object",
    properties: { kind: { enum: kinds }, ok: { type: "boolean" } },
    required: ["kind", "ok"],
    additionalProperties: false,
  };
  const response_format = { type: "json_schema", json_schema: { name: "answer", schema, strict: true } };
  const body = {
    model: "tiny",
    messages: [{ role: "user", content: "x" }],
    max_tokens: 400,
    seed: dice.int(0, 1000),
    response_format,
  };
  const call = await answered(`${server.url}/v1/chat/completions`, { body }, limitMs);
  if (!(await ledger.judge(what, call, server, await stuckIsBroken(call, what, ledger)))) return;
  const { choices } = call.json as unknown as { choices: ChatChoice[] };
  if (choices[0]?.finish_reason !== "stop") return;
  const answer = JSON.parse(choices[0].message?.content ?? "null") as { kind?: string } | null;
  if (!kinds.includes(answer?.kind ?? ""))
    ledger.broken(`${what}: the text does not match the schema: ${choices[0].message?.content}`);
  ledger.count("structured");
}

/** Waits for the end of a call. It is a violation if the client has closed the connection at its time limit. */
export async function stuckIsBroken(call: Call, what: string, ledger: Work["ledger"]): Promise<Awaited<Call["ended"]>> {
  const ending = await call.ended;
  if (ending === "left")
    ledger.broken(`${what}: no end within the limit (status ${call.status}, ${call.events.length} events)`);
  return ending;
}
