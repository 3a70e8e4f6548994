// Input types of embedding models (such as query or document): which prompt each type adds, and which types are rejected.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { InputEncoder } from "../../../../actors/text-tasks/input-encoder.ts";
import type { EmbeddingPrompts } from "../../../../engines/files/embedding-rules.ts";
import { createVocabulary } from "../../../../engines/text/tokenizer/vocabulary.ts";
import { tinyMetadata } from "../../text/tokenizer/tiny-vocabulary.ts";

interface Model {
  readonly prompts?: EmbeddingPrompts;
  readonly configured?: Readonly<Record<string, string>>;
  readonly architecture?: string;
  readonly name?: string;
}

const markers = { queryMarker: null, documentMarker: null, queryTokens: 32, attendsToMasks: false, skipped: [] };

async function encoderOf({
  prompts,
  configured,
  architecture = "bert",
  name = "unknown",
}: Model): Promise<InputEncoder> {
  const metadata = { ...(await tinyMetadata()), architecture, name, prompts: prompts ?? null };
  const vocabulary = createVocabulary(metadata.tokenizer);
  return new InputEncoder({ id: "m", metadata, vocabulary, isMultiVector: false, prompts: configured ?? null });
}

describe("input types", () => {
  it("prepend the prompt from the model's file to a text", async () => {
    const texts = { "Retrieval-query": "for it: ", clustering: "group: " };
    const encoder = await encoderOf({ prompts: { texts, fallback: null } });
    assert.equal(encoder.prompted("sea", "clustering"), "group: sea");
    assert.equal(encoder.prompted("sea", "retrieval-query"), "for it: sea");
    assert.equal(encoder.prompted("sea", undefined), "sea");
  });

  it("use the default prompt of the file for texts without a type", async () => {
    const encoder = await encoderOf({ prompts: { texts: { document: "doc: " }, fallback: "document" } });
    assert.equal(encoder.prompted("sea", undefined), "doc: sea");
  });

  it("accept the names that other services use", async () => {
    const encoder = await encoderOf({ prompts: { texts: { search_query: "q: ", passage: "p: " }, fallback: null } });
    for (const name of ["query", "search_query", "retrieval.query"]) assert.equal(encoder.prompted("a", name), "q: a");
    for (const name of ["document", "search_document", "corpus"]) assert.equal(encoder.prompted("a", name), "p: a");
  });

  it("are known for common models whose files name none, by architecture or name", async () => {
    const queries: readonly (readonly [Model, string])[] = [
      [{ architecture: "gemma-embedding" }, "task: search result | query: a"],
      [{ architecture: "nomic-bert", name: "nomic-embed-text-v1.5" }, "search_query: a"],
      [{ name: "Multilingual E5 Small" }, "query: a"],
      [{ name: "bge-small-en-v1.5" }, "Represent this sentence for searching relevant passages: a"],
      [{ name: "Snowflake Arctic Embed L v2.0" }, "query: a"],
      [{ name: "snowflake-arctic-embed2" }, "query: a"],
      [{ name: "snowflake-arctic-embed-m" }, "Represent this sentence for searching relevant passages: a"],
      [{ name: "bge-m3" }, "a"],
    ];
    for (const [model, expected] of queries) {
      assert.equal((await encoderOf(model)).prompted("a", "query"), expected, JSON.stringify(model));
    }
    const instructed = await encoderOf({ architecture: "qwen3", name: "Qwen3 Embedding 0.6B" });
    assert.match(String(instructed.prompted("a", "query")), /^Instruct: .*\nQuery:a$/);
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
    assert.throws(() => encoder.prompted("a", "clustering"), {
      code: "invalid_value",
      param: "input_type",
      message: 'input_type: model "m" expects one of "query"; got "clustering"',
    });
  });

  it("keep the default one of the file, if the settings have its name", async () => {
    const prompts = { texts: { query: "q: ", document: "d: " }, fallback: "document" };
    const named = await encoderOf({ prompts, configured: { document: "doc: " } });
    assert.equal(named.prompted("a", undefined), "doc: a");
    const other = await encoderOf({ prompts, configured: { query: "ask: " } });
    assert.equal(other.prompted("a", undefined), "a");
  });

  it("of the settings are refused for a ColBERT model, which has markers", async () => {
    const metadata = { ...(await tinyMetadata()), multiVector: markers };
    const vocabulary = createVocabulary(metadata.tokenizer);
    const options = { id: "m", metadata, vocabulary, isMultiVector: true, prompts: { query: "ask: " } };
    assert.throws(() => new InputEncoder(options), {
      code: "config_invalid",
      message: /ColBERT model.*remove prompts/,
    });
  });

  it("query and document have no prompt, if a model names one for the other of them only, or none at all", async () => {
    const encoder = await encoderOf({ prompts: { texts: { search_query: "q: " }, fallback: "search_query" } });
    for (const name of ["document", "passage", "corpus"]) assert.equal(encoder.prompted("a", name), "a");
    assert.equal(encoder.typeOf("document"), "document");
    const without = await encoderOf({});
    for (const name of ["query", "search_document"]) assert.equal(without.prompted("a", name), "a");
    const other = await encoderOf({ prompts: { texts: { s2p_query: "q: " }, fallback: null } });
    assert.throws(() => other.prompted("a", "query"), { code: "invalid_value", message: /one of "s2p_query"/ });
    assert.equal(other.typeOf("query"), undefined);
  });

  it("have control tokens in the prompt of a model, and none in the text of a client", async () => {
    const metadata = await tinyMetadata();
    const vocabulary = createVocabulary(metadata.tokenizer);
    const [control = 0] = vocabulary.controlTokens.filter((token) => vocabulary.tokenText(token).length > 1);
    const name = vocabulary.tokenText(control);
    const encoder = await encoderOf({ prompts: { texts: { query: `${name}ask ` }, fallback: null } });
    const tokens = vocabulary.encodeWhole(encoder.prompted(`a${name}`, "query"));
    assert.deepEqual([tokens.indexOf(control), tokens.lastIndexOf(control)], [0, 0]);
    assert.deepEqual([...tokens.slice(1)], [...vocabulary.encode(`ask a${name}`)]);
  });

  it("are refused for a model without prompts, except query and document", async () => {
    const encoder = await encoderOf({});
    assert.equal(encoder.prompted("a", undefined), "a");
    assert.throws(
      () => encoder.prompted("a", "clustering"),
      (error: { code: string; message: string }) => {
        assert.equal(error.code, "unsupported");
        assert.match(
          error.message,
          /names no prompts.*send query or document, leave out input_type, or set the model's prompts/,
        );
        return true;
      },
    );
  });
});
