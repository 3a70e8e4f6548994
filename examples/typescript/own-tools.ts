// Embedded server with tools: this program embeds troupe, and the model calls functions of the program.
// Usage: `node examples/typescript/own-tools.ts "How many pears are left?"`. The embedded server runs the tools, so the
// response to the request is the final text. TROUPE_MODEL is the model, a path or a name. Models with 4B parameters or
// more use tools reliably (`npx troupe models`).
import { createTroupe, tool } from "troupe";
import { z } from "zod";

const [question = "How many apples are in stock? Look it up."] = process.argv.slice(2);
const modelId = process.env.TROUPE_MODEL ?? "qwen3-4b";
const stock = new Map([
  ["apples", 12],
  ["pears", 3],
]);

const countStock = tool({
  name: "count_stock",
  description: "Returns how many pieces of a fruit are in stock.",
  schema: z.object({ fruit: z.enum(["apples", "pears"]) }),
  run: ({ fruit }) => {
    const count = stock.get(fruit) ?? 0;
    console.log(`> count_stock(${fruit}) = ${count}`);
    return { fruit, count };
  },
});

const troupe = await createTroupe({ models: [{ modelId }], troupe: { logLevel: "warn" }, tools: [countStock] });
const reply = await troupe.fetch(
  new Request("http://localhost/v1/chat/completions", {
    method: "POST",
    headers: { "content-type": "application/json" },
    // A small model rarely calls a tool on its own, so the first round requires a call.
    body: JSON.stringify({
      messages: [{ role: "user", content: question }],
      tool_choice: "required",
      temperature: 0,
      max_tokens: 500,
    }),
  }),
);
const answer = (await reply.json()) as {
  readonly choices: readonly { readonly message: { readonly content: string } }[];
};
console.log(answer.choices[0]?.message.content);
await troupe.close();
