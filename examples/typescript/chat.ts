// Streaming chat: `node examples/typescript/chat.ts "Your question"`. Needs Node 22.18 or newer, which runs TypeScript,
// and `npm install openai`. TROUPE_URL is the address of the server, TROUPE_KEY its API key if it has one.
import OpenAI from "openai";

const client = new OpenAI({
  baseURL: `${process.env.TROUPE_URL ?? "http://localhost:1234"}/v1`,
  apiKey: process.env.TROUPE_KEY ?? "none",
});

const stream = await client.chat.completions.create({
  model: "default",
  messages: [{ role: "user", content: process.argv[2] ?? "Write a haiku about the sea." }],
  stream: true,
  stream_options: { include_usage: true },
});
for await (const { choices, usage } of stream) {
  process.stdout.write(choices[0]?.delta.content ?? "");
  if (usage) console.log(`\n(${usage.prompt_tokens} + ${usage.completion_tokens} tokens)`);
}
