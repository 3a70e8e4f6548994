// Faults of clients: half-open sockets, slow requests, long bodies, idle connections, malformed HTTP.
import { connect, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { answered } from "../client.ts";
import type { Fault, FaultTarget } from "./fault.ts";

const always = (): boolean => true;
const post = "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n";

const malformed = [
  "GET / HTTP/9.9\r\n\r\n",
  "\u0000\u0001\u0002\u0003 garbage\r\n\r\n",
  `${post}content-length: 5\r\ncontent-length: 6\r\n\r\nhello`,
  `${post}transfer-encoding: gzip\r\n\r\n`,
  `${post}transfer-encoding: chunked\r\n\r\nzz\r\n`,
  `GET /${"a".repeat(40_000)} HTTP/1.1\r\nhost: a\r\n\r\n`,
  `${post}content-length: 99999999999\r\n\r\n`,
  `${post}content-length: 12\r\n\r\n{"messages":`,
];

export const clientFaults: readonly Fault[] = [
  {
    name: "half-open sockets",
    weight: 1,
    effects: { codes: [] },
    fits: always,
    run: (target) =>
      withSockets(
        target,
        target.dice.int(20, 200),
        `${post}content-length: 1000\r\n\r\n{"messages":`,
        target.dice.int(200, 1500),
      ),
  },
  {
    name: "idle connections",
    weight: 1,
    effects: { codes: [] },
    fits: always,
    run: (target) => withSockets(target, target.dice.chance(0.1) ? 10_000 : 500, "", target.dice.int(200, 1500)),
  },
  {
    name: "slow requests",
    weight: 1,
    effects: { codes: [] },
    fits: always,
    async run({ server, dice }) {
      const sockets = open(server.url, dice.int(5, 50));
      const until = performance.now() + dice.int(300, 2000);
      for (let i = 0; performance.now() < until; i++) {
        for (const socket of sockets) socket.write(post[i % post.length] ?? "");
        await sleep(30);
      }
      for (const socket of sockets) socket.destroy();
    },
  },
  {
    name: "bodies of 50 MB",
    weight: 1,
    effects: { codes: ["queue_full"] },
    fits: always,
    async run({ server, dice, ledger }) {
      const content = dice.word(64, ["a", "b", " "]).repeat(780_000);
      const body = JSON.stringify({ model: "tiny", messages: [{ role: "user", content }] });
      const calls = dice.times(dice.int(1, 2), () => answered(`${server.url}/v1/chat/completions`, { body }, 120_000));
      const fitting = ["context_length_exceeded", "queue_full", "body_too_large", "invalid_value", "timeout"];
      for (const call of await Promise.all(calls))
        await ledger.judge("a body of 50 MB", call, server, await call.ended, fitting);
    },
  },
  {
    name: "malformed HTTP",
    weight: 1,
    effects: { codes: [] },
    fits: always,
    async run({ server, dice }) {
      const sockets = dice.times(dice.int(5, 40), () => {
        const [socket] = open(server.url, 1) as [Socket];
        socket.write(dice.pick(malformed));
        return socket;
      });
      await sleep(dice.int(100, 500));
      for (const socket of sockets) socket.destroy();
    },
  },
];

async function withSockets({ server }: FaultTarget, count: number, text: string, ms: number): Promise<void> {
  const sockets = open(server.url, count);
  if (text !== "") for (const socket of sockets) socket.write(text);
  await sleep(ms);
  for (const socket of sockets) socket.destroy();
}

function open(url: string, count: number): Socket[] {
  return Array.from({ length: count }, () => {
    const socket = connect(Number(new URL(url).port), "127.0.0.1");
    socket.on("error", () => {});
    return socket.resume();
  });
}
