// MCP dispatch: a route's response becomes the result of a tool call. Its pieces are joined, up to a maximum length.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createApp } from "../../../http/app.ts";
import { dispatch } from "../../../http/mcp/dispatch.ts";
import { FakeInference } from "../../fixtures/fakes/fake-inference.ts";
import { recordingLog } from "../../fixtures/http-server.ts";

const inference = new FakeInference();
const app = createApp({ inference, log: recordingLog(), config: { accessLog: false } });
const signal = new AbortController().signal;
const caller = {
  method: "POST",
  path: "/mcp",
  query: "",
  headers: new Map(),
  body: new Uint8Array(0),
  bodyBytes: 0,
  releaseBody: () => {},
  holdBody: () => () => {},
  address: "",
  signal,
};

function embed(vectorCount: number) {
  const vectors = Array.from({ length: vectorCount }, (_, i) => new Float32Array(1000).fill(1 / (i + 3)));
  inference.embedder = async () => ({ vectors, promptTokens: 1 });
  return dispatch(app, { path: "/v1/embeddings", body: { input: "a" }, caller, requestId: "r", signal });
}

describe("an answer to a tool call", () => {
  it("is joined from its pieces", async () => {
    for (const vectorCount of [1, 200]) {
      const { status, body } = await embed(vectorCount);
      assert.equal(status, 200);
      assert.equal(JSON.parse(body).data.length, vectorCount);
    }
  });

  it("is that of the route if only listed origins may use the app", async () => {
    inference.embedder = async () => ({ vectors: [new Float32Array(4)], promptTokens: 1 });
    const config = { accessLog: false, corsOrigins: ["https://chat.example"] };
    const guarded = createApp({ inference, log: recordingLog(), config });
    const fromHost = (host: string) => {
      const asked = { path: "/v1/embeddings", body: { input: "a" }, requestId: "r", signal };
      return dispatch(guarded, { ...asked, caller: { ...caller, headers: new Map([["host", host]]) } });
    };
    assert.equal((await fromHost("127.0.0.1:1235")).status, 200);
    assert.equal((await fromHost("elsewhere.example")).status, 403);
  });

  it("is rejected if it is too long", async () => {
    const { status, body } = await embed(1000);
    assert.equal(status, 400);
    assert.match(JSON.parse(body).error.message, /longer than 8388608 characters/);
  });
});
