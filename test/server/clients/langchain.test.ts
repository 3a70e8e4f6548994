// LangChain's OpenAI model, against the real command with the real default model.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { AIMessage, type AIMessageChunk, HumanMessage, ToolMessage } from "@langchain/core/messages";
import { ChatOpenAI, OpenAIEmbeddings } from "@langchain/openai";
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
const tools = [weather, time].map((tool) => ({ type: "function" as const, function: tool }));

const outputTokens = (answer: object) =>
  (answer as { usage_metadata?: { output_tokens: number } }).usage_metadata?.output_tokens ?? 0;

for (const useResponsesApi of [false, true]) {
  describe(`LangChain over ${useResponsesApi ? "responses" : "chat completions"}`, () => {
    const model = (tokens = maxTokens) =>
      new ChatOpenAI({
        model: "default",
        apiKey: "any",
        temperature: 0,
        maxTokens: tokens,
        maxRetries: 0,
        useResponsesApi,
        configuration: { baseURL: `${server.url}/v1` },
      });

    it("answers", async () => {
      const answer = await model().invoke(question);
      assert.ok(answer.text.length > 10);
      assert.ok(outputTokens(answer) > 5);
    });

    it("streams the same answer", async () => {
      const whole = await model().invoke(question);
      let text = "";
      for await (const chunk of await model().stream(question)) text += chunk.text;
      assert.equal(text, whole.text);
    });

    it("calls tools, streamed and not", async () => {
      // With the Responses API, LangChain sends a tool choice only in the form that names the tool.
      const tool_choice = { type: "function", function: { name: "get_weather" } } as const;
      const bound = model().bindTools(tools, { tool_choice, parallel_tool_calls: false });
      const { tool_calls: calls = [] } = await bound.invoke(toolQuestion);
      assert.ok(calls.length > 0);
      for (const { name, args } of calls) assertCall(name, args);
      let gathered: AIMessageChunk | null = null;
      for await (const chunk of await bound.stream(toolQuestion)) gathered = gathered ? gathered.concat(chunk) : chunk;
      assert.deepEqual(
        gathered?.tool_calls?.map(({ name, args }) => [name, args]),
        calls.map(({ name, args }) => [name, args]),
      );
    });

    it("accepts the results of parallel calls", async () => {
      const call = (id: string, city: string) => ({ id, name: "get_weather", args: { city, unit: "celsius" } });
      const answer = await model(16)
        .bindTools(tools)
        .invoke([
          new HumanMessage(toolQuestion),
          new AIMessage({ content: "", tool_calls: [call("a", "Rome"), call("b", "Paris")] }),
          new ToolMessage({ tool_call_id: "a", content: "sunny" }),
          new ToolMessage({ tool_call_id: "b", content: "rain" }),
        ]);
      assert.ok(outputTokens(answer) > 0);
    });

    it("gives structured output", async () => {
      const structured = model().withStructuredOutput(answerSchema as object, { name: "answer", method: "jsonSchema" });
      assertStructured(await structured.invoke(question));
    });

    it("is refused an image, and reads the errors", async () => {
      const content = [{ type: "image_url", image_url: { url: `data:image/png;base64,${image}` } }];
      const isRefused = (error: unknown) => (error as { status?: number }).status === 400;
      await assert.rejects(model().invoke([new HumanMessage({ content })]), isRefused);
      await assert.rejects(model().invoke("word ".repeat(2000)), { name: "ContextOverflowError" });
    });

    it("stops the engine when it is aborted", async () => {
      const abort = new AbortController();
      const stream = await model(800).stream("Count from one to a thousand, in words.", { signal: abort.signal });
      await assert.rejects(async () => {
        for await (const _ of stream) abort.abort();
      });
      await becomesIdle(server);
    });
  });
}

describe("LangChain's embeddings", () => {
  it("come from the generation model", async () => {
    const configuration = { baseURL: `${server.url}/v1` };
    const vectors = await new OpenAIEmbeddings({ model: "default", apiKey: "any", configuration }).embedDocuments([
      "a",
      "b",
    ]);
    assert.equal(vectors.length, 2);
    assert.ok((vectors[0]?.length ?? 0) > 100);
  });
});
