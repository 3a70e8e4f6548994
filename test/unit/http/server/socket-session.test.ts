// Session of a WebSocket connection: messages that arrive while a long event is sent in parts.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { BodyIntake } from "../../../../http/server/body-intake.ts";
import type { HttpRequest, StreamSink } from "../../../../http/server/edge.ts";
import { InFlight } from "../../../../http/server/in-flight.ts";
import type { Frame, SocketConnection } from "../../../../http/server/socket/connection.ts";
import { SocketSession } from "../../../../http/server/socket/session.ts";
import { SocketSessions } from "../../../../http/server/socket/sessions.ts";

const silent: SocketConnection = {
  send: () => true,
  drained: async () => {},
  ping: () => {},
  close: () => {},
  destroy: () => {},
};
const handshakeFrom = (address: string) =>
  ({ path: "/v1/responses", headers: new Map(), address }) as unknown as HttpRequest;

/** A session in whose reply an event has begun but not ended. */
function rig() {
  const frames: Frame[] = [];
  let isDestroyed = false;
  const connection: SocketConnection = {
    ...silent,
    send: (added) => frames.push(...added) > 0,
    destroy: () => {
      isDestroyed = true;
    },
  };
  let sink: StreamSink | undefined;
  const intake = new BodyIntake((_request, reply) => {
    sink = reply.stream(200, {});
  }, {});
  const handshake = handshakeFrom("127.0.0.1");
  const limits = { maxOpen: 1, idleMs: 60_000, lifetimeMs: 60_000 };
  const session = new SocketSession(connection, handshake, { intake, inFlight: new InFlight(), limits, onClosed() {} });
  const message = () => session.message(Buffer.from("{}"));
  message();
  assert.ok(sink);
  sink.write(`data: ${"x".repeat(2 ** 16)}`);
  return { session, sink, message, frames, isDestroyed: () => isDestroyed };
}

describe("the connections of one client", () => {
  it("are at most half of all, so that others can open some", () => {
    const intake = new BodyIntake(() => {}, {});
    const sockets = { maxOpen: 4, idleMs: 60_000, lifetimeMs: 60_000 };
    const sessions = new SocketSessions(intake, new InFlight(), { sockets } as never);
    const open = (address: string): SocketSession | string => {
      const handshake = handshakeFrom(address);
      return sessions.refusal(handshake)?.message ?? sessions.open(silent, handshake);
    };
    const opened = [open("a"), open("a")] as SocketSession[];
    assert.match(
      String(open("a")),
      /^2 WebSocket connections of this client are open, its share of 4 \(max_websockets\)/,
    );
    opened.push(open("b") as SocketSession, open("b") as SocketSession);
    assert.match(String(open("c")), /^4 WebSocket connections are open \(max_websockets\)/);
    opened[0]?.closed();
    opened[0] = open("a") as SocketSession;
    for (const session of opened) session.closed();
  });
});

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
