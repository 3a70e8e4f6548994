import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { SocketEndpoint } from "../../../runtime/endpoint/socket-endpoint.ts";
import { portPair, socketPair } from "../../fixtures/actors/endpoint-pair.ts";
import { settled } from "../../fixtures/fakes/fake-clock.ts";

async function socketEndpoints() {
  const [a, b] = await socketPair();
  return { left: new SocketEndpoint(a, { peer: "right" }), right: new SocketEndpoint(b, { peer: "left" }) };
}

for (const [carrier, createPair] of [
  ["port", async () => portPair()],
  ["socket", socketEndpoints],
] as const) {
  describe(`an endpoint over a ${carrier}`, () => {
    it("holds messages that arrive before their channel has a handler, and keeps the order with later ones", async () => {
      const { left, right } = await createPair();
      const allCame = new Promise<void>((resolve) => right.receive("last", resolve));
      left.send("numbers", 1);
      left.send("numbers", 2);
      left.send("last", null);
      await allCame;
      const numbers: number[] = [];
      right.receive("numbers", (number: number) => numbers.push(number));
      left.send("numbers", 3);
      while (numbers.length < 3) await settled();
      assert.deepEqual(numbers, [1, 2, 3]);
      left.close();
    });

    it("keeps that order when the handler is set between two messages that come together", async () => {
      const { left, right } = await createPair();
      const numbers: number[] = [];
      right.receive("open", () => right.receive("numbers", (number: number) => numbers.push(number)));
      left.send("numbers", 1);
      left.send("open", null);
      left.send("numbers", 2);
      while (numbers.length < 2) await settled();
      assert.deepEqual(numbers, [1, 2]);
      left.close();
    });

    it("delivers what was sent before close, and the peer sees an orderly exit", async () => {
      const { left, right } = await createPair();
      const numbers: number[] = [];
      right.receive("numbers", (number: number) => numbers.push(number));
      for (let i = 0; i < 100; i++) left.send("numbers", i);
      left.close();
      const [leftExit, rightExit] = await Promise.all([left.exit, right.exit]);
      assert.equal(numbers.length, 100);
      assert.equal(rightExit.orderly && leftExit.orderly, true);
      assert.equal(left.send("numbers", 1), false);
      assert.equal(right.send("numbers", 1), false);
    });

    it("closes on a peer that floods a channel without a handler", async () => {
      const { left, right } = await createPair();
      for (let i = 0; i < 1025; i++) left.send("nobody's", i);
      assert.match((await right.exit).reason, /1024 messages wait for handlers, the last on channel "nobody's"/);
      assert.equal((await left.exit).orderly, false);
    });
  });
}

describe("an endpoint over a port", () => {
  it("send returns false past the high-water mark, and true again when the peer has read", async () => {
    const { left, right } = portPair();
    right.receive("numbers", () => {});
    let answer = true;
    for (let i = 0; i <= 1024; i++) answer = left.send("numbers", i);
    assert.equal(answer, false);
    while (!left.send("numbers", 0)) await settled();
    left.close();
  });

  it("closes with a named error past its hard limit", async () => {
    const { left } = portPair();
    for (let i = 0; i <= 16_384; i++) left.send("numbers", i);
    assert.match((await left.exit).reason, /"right" has left 16384 messages unread/);
  });
});

describe("an endpoint over a socket", () => {
  it("reads frames split and joined at any byte", async () => {
    const [raw, wire] = await socketPair();
    const sender = new SocketEndpoint(raw, { peer: "wire" });
    const bytes: Buffer[] = [];
    wire.on("data", (chunk) => bytes.push(chunk));
    const messages = [1, "two", { three: [3, 3, 3] }, new Int32Array([4, 4]), null, "x".repeat(1000)];
    for (const message of messages) sender.send("c", message);
    sender.close();
    await sender.exit;
    while (!wire.closed) await settled();
    const stream = Buffer.concat(bytes);
    const cuts = fc.array(fc.integer({ min: 0, max: stream.length - 1 }), { maxLength: 12 });
    await fc.assert(
      fc.asyncProperty(cuts, async (places) => {
        const [a, b] = await socketPair();
        const reader = new SocketEndpoint(b, { peer: "a" });
        const got: unknown[] = [];
        reader.receive("c", (message: unknown) => got.push(message));
        let from = 0;
        for (const to of [...places.sort((x, y) => x - y), stream.length]) {
          a.write(stream.subarray(from, to));
          from = to;
          await settled();
        }
        assert.equal((await reader.exit).orderly, true);
        assert.deepEqual(got, messages);
        a.destroy();
      }),
      { numRuns: 25 },
    );
  });

  it("closes on invalid bytes, without other effects", async () => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ minLength: 1, maxLength: 64 }), async (bytes) => {
        const [a, b] = await socketPair();
        const reader = new SocketEndpoint(b, { peer: "a" });
        a.write(bytes);
        a.end();
        await reader.exit;
        a.destroy();
      }),
      { numRuns: 50 },
    );
  });

  it("names the fault in the bytes", async () => {
    const cases: [bytes: number[], reason: RegExp][] = [
      [[255, 255, 255, 255], /a frame that claims 4294967295 bytes; the limit is 67108864/],
      [[1, 0, 0, 0, 0x07], /a frame that is not \[channel, payload\]/],
      [[2, 0, 0, 0, 0xa9, 0x41], /a frame that is not msgpack/],
    ];
    for (const [bytes, reason] of cases) {
      const [a, b] = await socketPair();
      const reader = new SocketEndpoint(b, { peer: "a" });
      a.write(Buffer.from(bytes));
      assert.match((await reader.exit).reason, reason);
      a.destroy();
    }
  });

  it("rejects a message over the frame limit with a specific error, and stays open", async () => {
    const { left, right } = await socketEndpoints();
    assert.throws(() => left.send("big", new Uint8Array(65 * 1024 * 1024)), { code: "body_too_large" });
    const came = new Promise<string>((resolve) => right.receive("small", resolve));
    left.send("small", "still open");
    assert.equal(await came, "still open");
    left.close();
  });

  it("send returns false when a megabyte waits, and the endpoint closes with a named error at its hard limit", async () => {
    const [a, b] = await socketPair();
    b.pause();
    const left = new SocketEndpoint(a, { peer: "b" });
    const megabyte = new Uint8Array(16 * 1024 * 1024);
    assert.equal(left.send("c", megabyte), false);
    for (let i = 0; i < 16; i++) left.send("c", megabyte);
    assert.match((await left.exit).reason, /"b" has left \d+ bytes unread/);
    b.destroy();
  });
});
