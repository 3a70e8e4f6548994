// The Vercel AI SDK, with its OpenAI-compatible and its Anthropic provider, against the real command with the real default
// model.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import {
  APICallError,
  embedMany,
  generateText,
  jsonSchema,
  type LanguageModel,
  Output,
  streamText,
  type ToolSet,
  tool,
} from "ai";
import {
  answerSchema,
  assertCall,
  assertStructured,
  becomesIdle,
  image,
  matrixServer,
  maxTokens,
  question,
  time,
  toolQuestion,
  weather,
} from "./matrix.ts";

const server = matrixServer();
const compatible = () =>
  createOpenAICompatible({
    name: "troupe",
    baseURL: `${server.url}/v1`,
    apiKey: "any",
    includeUsage: true,
    supportsStructuredOutputs: true,
  });
const providers: Readonly<Record<string, () => LanguageModel>> = {
  "openai-compatible": () => compatible()("default"),
  anthropic: () => createAnthropic({ baseURL: `${server.url}/v1`, apiKey: "any" })("default"),
};
const tools: ToolSet = Object.fromEntries(
  [weather, time].map(({ name, description, parameters }) => [
    name,
    tool({ description, inputSchema: jsonSchema(parameters as object) }),
  ]),
);

for (const [name, model] of Object.entries(providers)) {
  describe(`the AI SDK with its ${name} provider`, () => {
    const base = () => ({ model: model(), temperature: 0, maxOutputTokens: maxTokens, maxRetries: 0 });

    it("answers", async () => {
      const { text, usage, finishReason } = await generateText({ ...base(), prompt: question });
      assert.ok(text.length > 10);
      assert.equal(finishReason, "stop");
      assert.ok((usage.inputTokens ?? 0) > 5 && (usage.outputTokens ?? 0) > 5);
    });

    it("streams the same answer, with no part it cannot read", async () => {
      const whole = await generateText({ ...base(), prompt: question });
      const stream = streamText({ ...base(), prompt: question });
      let text = "";
      for await (const part of stream.fullStream) {
        assert.notEqual(part.type, "error", `an error part: ${JSON.stringify(part)}`);
        if (part.type === "text-delta") text += part.text;
      }
      assert.equal(text, whole.text);
      assert.equal((await stream.usage).outputTokens, whole.usage.outputTokens);
    });

    it("calls a required tool and a named one", async () => {
      const any = await generateText({ ...base(), prompt: toolQuestion, tools, toolChoice: "required" });
      // A small model may repeat calls until it reaches the token limit.
      assert.ok(["tool-calls", "length"].includes(any.finishReason), any.finishReason);
      assert.ok(any.toolCalls.length > 0);
      // If the token limit ended the output, the last call is incomplete.
      const whole = any.finishReason === "length" ? any.toolCalls.slice(0, -1) : any.toolCalls;
      for (const { toolName, input } of whole) assertCall(toolName, input);
      const toolChoice = { type: "tool", toolName: "get_time" } as const;
      const named = await generateText({ ...base(), prompt: toolQuestion, tools, toolChoice });
      assert.equal(named.toolCalls[0]?.toolName, "get_time");
    });

    it("streams a call piece by piece", async () => {
      // The limit is large enough for the last call to be complete.
      const options = { ...base(), maxOutputTokens: 4 * maxTokens };
      const stream = streamText({ ...options, prompt: toolQuestion, tools, toolChoice: "required" });
      let pieces = 0;
      let calls = 0;
      for await (const part of stream.fullStream) {
        assert.notEqual(part.type, "error", `an error part: ${JSON.stringify(part)}`);
        if (part.type === "tool-input-delta") pieces++;
        if (part.type !== "tool-call") continue;
        calls++;
        assertCall(part.toolName, part.input);
      }
      assert.ok(calls > 0 && pieces > 3, `${calls} calls in ${pieces} pieces`);
    });

    it("accepts the results of parallel calls", async () => {
      const call = (toolCallId: string, city: string) => ({
        type: "tool-call" as const,
        toolCallId,
        toolName: "get_weather",
        input: { city, unit: "celsius" },
      });
      const result = (toolCallId: string, value: string) => ({
        type: "tool-result" as const,
        toolCallId,
        toolName: "get_weather",
        output: { type: "text" as const, value },
      });
      const { usage } = await generateText({
        ...base(),
        maxOutputTokens: 16,
        tools,
        messages: [
          { role: "user", content: toolQuestion },
          { role: "assistant", content: [call("a", "Rome"), call("b", "Paris")] },
          { role: "tool", content: [result("a", "sunny"), result("b", "rain")] },
        ],
      });
      assert.ok((usage.outputTokens ?? 0) > 0);
    });

    it("gives structured output", async () => {
      const output = Output.object({ schema: jsonSchema(answerSchema as object) });
      assertStructured((await generateText({ ...base(), prompt: question, output })).output);
    });

    it("gets a specific error for an image", async () => {
      const content = [{ type: "image" as const, image: Buffer.from(image, "base64"), mediaType: "image/png" }];
      await assert.rejects(generateText({ ...base(), messages: [{ role: "user", content }] }), (error: unknown) => {
        assert.ok(APICallError.isInstance(error));
        assert.match(error.responseBody ?? "", /messages\[0\]\.content\[0\]/);
        return true;
      });
    });

    it("stops the engine when it is aborted", async () => {
      const abort = new AbortController();
      const prompt = "Count from one to a thousand, in words.";
      const stream = streamText({ ...base(), maxOutputTokens: 800, prompt, abortSignal: abort.signal });
      for await (const part of stream.fullStream) if (part.type === "text-delta") abort.abort();
      await becomesIdle(server);
    });

    it("reads the status and the message of an error", async () => {
      await assert.rejects(generateText({ ...base(), prompt: "word ".repeat(2000) }), (error: unknown) => {
        assert.ok(APICallError.isInstance(error));
        assert.equal(error.statusCode, 400);
        assert.match(error.message, /tokens/);
        return true;
      });
    });
  });
}

describe("the AI SDK's embeddings", () => {
  it("come from the generation model", async () => {
    const { embeddings } = await embedMany({ model: compatible().embeddingModel("default"), values: ["sea", "ship"] });
    assert.equal(embeddings.length, 2);
  });
});
