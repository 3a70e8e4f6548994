import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createApp } from "../../../../http/app.ts";
import { clientOf, shareSalt } from "../../../../http/server/client.ts";
import { FakeInference } from "../../../fixtures/fakes/fake-inference.ts";
import { request } from "../../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../../fixtures/http-server.ts";

const key = "sk-0123456789abcdef0123456789abcdef";

function client(headers: Readonly<Record<string, string>>, address = "10.0.0.1"): string {
  return clientOf({ headers: new Map(Object.entries(headers)), address });
}

describe("the client of a request", () => {
  it("is its API key, from any address and in either header", () => {
    const one = client({ authorization: `Bearer ${key}` });
    assert.equal(client({ authorization: `bearer ${key}` }, "10.0.0.2"), one);
    assert.equal(client({ "x-api-key": key }, "10.0.0.3"), one);
    assert.notEqual(client({ "x-api-key": `${key}x` }), one);
  });

  it("is its address without a key", () => {
    assert.equal(client({}), client({ authorization: "Bearer " }));
    assert.notEqual(client({}, "10.0.0.1"), client({}, "10.0.0.2"));
    assert.equal(client({ "x-forwarded-for": "1.2.3.4" }), client({}), "anyone can write that header");
  });

  it("is key and address together for a placeholder key", () => {
    for (const placeholder of ["none", "EMPTY", "sk-no-key-required"]) {
      const headers = { authorization: `Bearer ${placeholder}` };
      assert.notEqual(client(headers, "10.0.0.1"), client(headers, "10.0.0.2"));
    }
    assert.notEqual(client({ authorization: "Bearer alice" }), client({ authorization: "Bearer bob" }));
  });

  it("has one name on all replicas, which share a salt, and another one elsewhere", () => {
    const alone = client({ "x-api-key": key });
    shareSalt("the salt of some replicas");
    const shared = client({ "x-api-key": key });
    shareSalt("the salt of others");
    assert.equal(new Set([alone, shared, client({ "x-api-key": key })]).size, 3);
    shareSalt("the salt of some replicas");
    assert.equal(client({ "x-api-key": key }), shared);
  });

  it("is passed on with the request and never reveals the key", async () => {
    const inference = new FakeInference();
    const app = createApp({ inference, log: recordingLog() });
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    for (const [path, body] of [
      ["/v1/chat/completions", '{"messages":"hi"}'],
      ["/v1/completions", '{"prompt":"hi"}'],
    ] as const) {
      await request(app, "POST", path, { headers, body });
      assert.equal(inference.lastRun.request.client, client(headers));
      assert.ok(!JSON.stringify(inference.lastRun.request).includes(key));
    }
    assert.ok(client(headers).length <= 16);
  });
});
