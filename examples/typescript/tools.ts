// Tools in chat completions: the model requests tool calls, and this program runs them and sends the results until the
// model answers. `node examples/typescript/tools.ts "How is the weather in Paris?"`. Needs `npm install openai`.
// TROUPE_URL is the address of the server, TROUPE_KEY its API key if it has one.
import OpenAI from "openai";

const client = new OpenAI({
  baseURL: `${process.env.TROUPE_URL ?? "http://localhost:1234"}/v1`,
  apiKey: process.env.TROUPE_KEY ?? "none",
});
const maxRounds = 5;

const tools: OpenAI.ChatCompletionFunctionTool[] = [
  {
    type: "function",
    function: {
      name: "get_weather",
      description: "Tells the weather of a city.",
      // With `strict`, arguments always match the schema.
      strict: true,
      parameters: {
        type: "object",
        properties: { city: { type: "string", enum: ["Paris", "Rome", "Oslo"] } },
        required: ["city"],
        additionalProperties: false,
      },
    },
  },
];

function getWeather(city: string): string {
  return `${city}: sunny, 21 degrees`;
}

const messages: OpenAI.ChatCompletionMessageParam[] = [
  { role: "user", content: process.argv[2] ?? "How is the weather in Rome?" },
];
for (let round = 0; round < maxRounds; round++) {
  const { choices } = await client.chat.completions.create({
    model: "default",
    messages,
    tools,
    // A small model rarely calls a tool on its own, so the first round requires a call.
    tool_choice: round === 0 ? "required" : "auto",
    parallel_tool_calls: false,
  });
  const message = choices[0]?.message;
  if (message === undefined) break;
  messages.push(message);
  if (!message.tool_calls?.length) {
    console.log(message.content);
    break;
  }
  for (const call of message.tool_calls) {
    if (call.type !== "function") continue;
    const { city } = JSON.parse(call.function.arguments) as { city: string };
    const content = getWeather(city);
    console.log(`${call.function.name}(${city}) -> ${content}`);
    messages.push({ role: "tool", tool_call_id: call.id, content });
  }
}
