import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { EmbedInputs } from "../../../actors/api/inference.ts";
import { createApp } from "../../../http/app.ts";
import { embeddingListSchema } from "../../../http/embeddings/operation.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { FakeInference } from "../../fixtures/fakes/fake-inference.ts";
import { request } from "../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../fixtures/http-server.ts";

const inference = new FakeInference();
const app = createApp({ inference, log: recordingLog() });

const send = (body: object) => request(app, "POST", "/v1/embeddings", { body });

async function embed(body: object) {
  const reply = await send(body);
  assert.equal(reply.status, 200, reply.body);
  assert.equal(reply.headers["content-type"], "application/json");
  const answer = JSON.parse(reply.body);
  embeddingListSchema.parse(answer);
  return answer;
}

function unpackedInputs({ kind, values, ends }: EmbedInputs): unknown {
  return Array.from(ends, (end, i) => {
    const input = values.subarray(i === 0 ? 0 : ends[i - 1]!, end);
    return kind === "texts" ? new TextDecoder().decode(input) : [...input];
  });
}

describe("POST /v1/embeddings", () => {
  it("returns one vector per input, and the usage", async () => {
    assert.deepEqual(await embed({ input: ["a", "b"] }), {
      object: "list",
      data: [
        { object: "embedding", index: 0, embedding: [0, 0.5] },
        { object: "embedding", index: 1, embedding: [1, 0.5] },
      ],
      model: "tiny",
      usage: { prompt_tokens: 6, total_tokens: 6 },
    });
  });

  it("returns identical numbers as floats and as base64", async () => {
    const vector = Float32Array.of(0.1, -1e-8, 3.4028234663852886e38, 1 / 3, -0);
    const whole = new Float32Array(9);
    whole.set(vector, 4);
    inference.embedder = async () => ({ vectors: [whole.subarray(4)], promptTokens: 1 });
    const [floats, base64] = [await embed({ input: "a" }), await embed({ input: "a", encoding_format: "base64" })].map(
      ({ data }) => data[0].embedding,
    );
    const bytes = Buffer.from(base64, "base64");
    const decoded = Array.from({ length: 5 }, (_, i) => bytes.readFloatLE(4 * i));
    assert.deepEqual(decoded, [...vector]);
    assert.deepEqual(
      floats.map((value: number) => value + 0),
      decoded.map((value) => value + 0),
    );
  });

  it("writes vectors in order over several turns of the event loop", async () => {
    const vectors = Array.from({ length: 300 }, (_, i) => new Float32Array(100).fill(i));
    inference.embedder = async () => ({ vectors, promptTokens: 1 });
    const { data } = await embed({ input: "a" });
    assert.deepEqual(
      data.map(({ index, embedding }: { index: number; embedding: number[] }) => [index, embedding.at(-1)]),
      vectors.map((_, i) => [i, i]),
    );
  });

  const inputs: readonly (readonly [string, unknown, unknown])[] = [
    ["a text", "hi", ["hi"]],
    ["texts", ["hi", "h\u00f6 \ud83d\ude00", "ho"], ["hi", "h\u00f6 \ud83d\ude00", "ho"]],
    ["the tokens of one input", [1, 2], [[1, 2]]],
    ["the tokens of several", [[1, 2], [3]], [[1, 2], [3]]],
  ];
  for (const [what, input, expected] of inputs) {
    it(`takes ${what}`, async () => {
      await embed({ input, user: "me", truncate_sequence: true, priority: 4, dimensions: null });
      const { client, inputs, ...rest } = inference.embedRequests.at(-1)!;
      assert.deepEqual(unpackedInputs(inputs), expected);
      assert.deepEqual(rest, { model: "tiny", truncateInputs: true, priority: 4, takesTokenVectors: true });
      assert.ok(client.length > 0);
    });
  }

  it("passes the input type on", async () => {
    await embed({ input: "a", input_type: "search_query" });
    assert.equal(inference.embedRequests.at(-1)?.inputType, "search_query");
  });

  it("writes a vector for each token as an array of arrays, or one after another in base64", async () => {
    const vectors = [Float32Array.of(1, 0, 0, 1), Float32Array.of(0.5, 0.25)];
    inference.embedder = async () => ({ vectors, promptTokens: 3, tokenVectorLength: 2 });
    const rows = [
      [
        [1, 0],
        [0, 1],
      ],
      [[0.5, 0.25]],
    ];
    const shapes = [
      [2, 2],
      [1, 2],
    ];
    const expected = rows.map((embedding, index) => ({ object: "embedding", index, embedding, shape: shapes[index] }));
    assert.deepEqual((await embed({ input: ["a", "b"] })).data, expected);
    const { data } = await embed({ input: ["a", "b"], encoding_format: "base64" });
    const bytes = Buffer.from(data[0].embedding, "base64");
    assert.deepEqual(
      [0, 1, 2, 3].map((i) => bytes.readFloatLE(4 * i)),
      [1, 0, 0, 1],
    );
    assert.deepEqual(data[0].shape, [2, 2]);
  });

  it("takes the number of elements to keep", async () => {
    await embed({ input: "a", dimensions: 64 });
    assert.equal(inference.embedRequests.at(-1)?.dimensions, 64);
  });

  const wrong: readonly (readonly [object, string])[] = [
    [{}, "input"],
    [{ input: "" }, "input"],
    [{ input: [] }, "input"],
    [{ input: ["a", ""] }, "input[1]"],
    [{ input: [1, "a"] }, "input"],
    [{ input: [1, true] }, "input[1]"],
    [{ input: 7 }, "input"],
    [{ input: [[1], []] }, "input[1]"],
    [{ input: [1, -1] }, "input[1]"],
    [{ input: Array.from({ length: 2049 }, () => "a") }, "input"],
    [{ input: "a", encoding_format: "hex" }, "encoding_format"],
    [{ input: "a", dimensions: 0 }, "dimensions"],
    [{ input: "a", input_type: "" }, "input_type"],
    [{ input: "a", inputs: "b" }, "inputs"],
  ];
  for (const [body, param] of wrong) {
    it(`refuses ${JSON.stringify(body).slice(0, 60)}`, async () => {
      const reply = await send(body);
      assert.deepEqual([reply.status, JSON.parse(reply.body).error.param], [400, param], reply.body);
    });
  }

  it("returns the error of the inference service", async () => {
    inference.embedder = async () => {
      throw new ServerError("unsupported", "it scores", { param: "model" });
    };
    const reply = await send({ input: "a" });
    assert.equal(reply.status, 400);
    assert.deepEqual(JSON.parse(reply.body).error, {
      message: "it scores",
      type: "invalid_request_error",
      param: "model",
      code: "unsupported",
    });
  });

  it("passes on the abort signal of the client", async () => {
    const client = new AbortController();
    const aborted = new Promise<void>((resolve) => {
      inference.embedder = (_, signal) =>
        new Promise((_, reject) => {
          signal.addEventListener("abort", () => {
            resolve();
            reject(new ServerError("cancelled", "the client left"));
          });
          client.abort();
        });
    });
    void request(app, "POST", "/v1/embeddings", { body: { input: "a" }, signal: client.signal });
    await aborted;
  });
});
