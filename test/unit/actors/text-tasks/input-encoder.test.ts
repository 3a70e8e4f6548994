// Input types of embedding models: where the prompts come from, and which types are refused.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { InputEncoder } from "../../../../actors/text-tasks/input-encoder.ts";
import type { EmbeddingPrompts } from "../../../../engines/files/embedding-rules.ts";
import { tinyMetadata } from "../../text/tokenizer/tiny-vocabulary.ts";

interface Model {
  readonly prompts?: EmbeddingPrompts;
  readonly configured?: Readonly<Record<string, string>>;
  readonly architecture?: string;
  readonly name?: string;
}

async function encoderOf({
  prompts,
  configured,
  architecture = "bert",
  name = "unknown",
}: Model): Promise<InputEncoder> {
  const metadata = { ...(await tinyMetadata()), architecture, name, prompts: prompts ?? null };
  const options = { id: "m", bosToken: null, isMultiVector: false, prompts: configured ?? null };
  return new InputEncoder({ ...options, metadata });
}

describe("input types", () => {
  it("put the prompt of the model's file before a text", async () => {
    const texts = { "Retrieval-query": "for it: ", clustering: "group: " };
    const encoder = await encoderOf({ prompts: { texts, fallback: null } });
    assert.equal(encoder.prompted("sea", "clustering"), "group: sea");
    assert.equal(encoder.prompted("sea", "retrieval-query"), "for it: sea");
    assert.equal(encoder.prompted("sea", undefined), "sea");
  });

  it("take the default prompt of the file for texts without a type", async () => {
    const encoder = await encoderOf({ prompts: { texts: { document: "doc: " }, fallback: "document" } });
    assert.equal(encoder.prompted("sea", undefined), "doc: sea");
  });

  it("know the names of other services", async () => {
    const encoder = await encoderOf({ prompts: { texts: { search_query: "q: ", passage: "p: " }, fallback: null } });
    for (const name of ["query", "search_query", "retrieval.query"]) assert.equal(encoder.prompted("a", name), "q: a");
    for (const name of ["document", "search_document"]) assert.equal(encoder.prompted("a", name), "p: a");
  });

  it("are known for common models whose files name none, by architecture or name", async () => {
    const queries: readonly (readonly [Model, string])[] = [
      [{ architecture: "gemma-embedding" }, "task: search result | query: a"],
      [{ architecture: "nomic-bert", name: "nomic-embed-text-v1.5" }, "search_query: a"],
      [{ name: "Multilingual E5 Small" }, "query: a"],
      [{ name: "bge-small-en-v1.5" }, "Represent this sentence for searching relevant passages: a"],
      [{ name: "Snowflake Arctic Embed L v2.0" }, "query: a"],
      [{ name: "bge-m3" }, "a"],
    ];
    for (const [model, expected] of queries) {
      assert.equal((await encoderOf(model)).prompted("a", "query"), expected, JSON.stringify(model));
    }
    const instructed = await encoderOf({ architecture: "qwen3", name: "Qwen3 Embedding 0.6B" });
    assert.match(instructed.prompted("a", "query"), /^Instruct: .*\nQuery:a$/);
    assert.equal(instructed.prompted("a", "document"), "a");
  });

  it("are known for such a model, too, if its file has only empty prompts", async () => {
    const prompts = { texts: { query: "", document: "" }, fallback: null };
    assert.equal((await encoderOf({ name: "e5-small-v2", prompts })).prompted("a", "document"), "passage: a");
    assert.equal((await encoderOf({ prompts })).prompted("a", "document"), "a");
  });

  it("are those of the settings, if these name any", async () => {
    const encoder = await encoderOf({ name: "e5-small-v2", configured: { query: "ask: " } });
    assert.equal(encoder.prompted("a", "query"), "ask: a");
    assert.throws(() => encoder.prompted("a", "document"), {
      code: "invalid_value",
      param: "input_type",
      message: 'input_type: model "m" expects one of "query"; got "document"',
    });
  });

  it("are refused for a model without prompts", async () => {
    const encoder = await encoderOf({});
    assert.equal(encoder.prompted("a", undefined), "a");
    assert.throws(
      () => encoder.prompted("a", "query"),
      (error: { code: string; message: string }) => {
        assert.equal(error.code, "unsupported");
        assert.match(error.message, /names no prompts.*leave out input_type, or set the model's prompts/);
        return true;
      },
    );
  });
});
