// Session of a WebSocket connection: messages that arrive while a long event is sent in parts.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { BodyIntake } from "../../../../http/server/body-intake.ts";
import type { HttpRequest, StreamSink } from "../../../../http/server/edge.ts";
import { InFlight } from "../../../../http/server/in-flight.ts";
import type { Frame, SocketConnection } from "../../../../http/server/socket/connection.ts";
import { SocketSession } from "../../../../http/server/socket/session.ts";

/** A session in whose reply an event has begun but not ended. */
function rig() {
  const frames: Frame[] = [];
  let isDestroyed = false;
  const connection: SocketConnection = {
    send: (added) => frames.push(...added) > 0,
    drained: async () => {},
    ping: () => {},
    close: () => {},
    destroy: () => {
      isDestroyed = true;
    },
  };
  let sink: StreamSink | undefined;
  const intake = new BodyIntake((_request, reply) => {
    sink = reply.stream(200, {});
  }, {});
  const handshake = { path: "/v1/responses", headers: new Map(), address: "127.0.0.1" } as unknown as HttpRequest;
  const limits = { maxOpen: 1, idleMs: 60_000, lifetimeMs: 60_000 };
  const session = new SocketSession(connection, handshake, { intake, inFlight: new InFlight(), limits, onClosed() {} });
  const message = () => session.message(Buffer.from("{}"));
  message();
  assert.ok(sink);
  sink.write(`data: ${"x".repeat(2 ** 16)}`);
  return { session, sink, message, frames, isDestroyed: () => isDestroyed };
}

describe("messages during an event that is sent in parts", () => {
  it("are refused after its last frame, and before the next event", () => {
    const { session, sink, message, frames } = rig();
    message();
    message();
    sink.write("y\n\ndata: next\n\n");
    message();
    session.closed();
    assert.deepEqual(
      frames.map(({ text, part }) => [part, text.includes("conflict") ? "refusal" : text.at(-1)]),
      [
        ["first", "x"],
        ["last", "y"],
        ["whole", "refusal"],
        ["whole", "refusal"],
        ["whole", "t"],
        ["whole", "refusal"],
      ],
    );
  });

  it("end the connection if there are too many, because their refusals are held in memory", () => {
    const { session, message, isDestroyed } = rig();
    message();
    assert.ok(!isDestroyed());
    for (let i = 0; i < 100; i++) message();
    session.closed();
    assert.ok(isDestroyed());
  });
});
