// Probes with large request bodies and headers.
import { setTimeout as sleep } from "node:timers/promises";
import {
  namedOrClosed,
  namedReplies,
  namedRepliesWithin,
  type Outcome,
  type Probe,
  type ServerProbe,
} from "../probe.ts";
import type { Reply } from "../rig/client.ts";
import type { Rig } from "../rig/rig.ts";

const legalBytes = 49_000_000;
/** Maximum size of a request body in the HTTP contract. */
const largestBytes = 50 * 1024 * 1024;
const heldBodies = 8;
/**
 * Bytes left free in the server's memory for request bodies: room for one request of the bystander (a well-behaved client) or for
 * one small request of the attacker (see `small`).
 */
const spareBytes = 100;
const fillers = 8;
const fillingMs = 20;
/** Body with which the attacker fills the rest of the memory. It is shorter than any request of the bystander (a well-behaved client). */
const small = '{"messages":"x","ignore_eos":true}';
const sendingMs = 1500;
const heldMs = 10_000;
/** Slightly below the server's limit of 200,000 values in a body. */
const valueCount = 199_900;
const headerLength = 60_000;

export const bodyProbes: readonly Probe[] = [
  {
    name: "eight bodies of 50 MB in an ignored field, long answers",
    finding: 8,
    concerns: ["edge"],
    run: holdBodies,
  },
  {
    name: "content-type of 60 KB",
    finding: 9,
    concerns: ["edge"],
    async run(rig) {
      // Node's HTTP server accepts 16 KB of headers in total.
      const spaces = " ".repeat(rig.options.edge === "node" ? 15_000 : headerLength);
      const headers = { "content-type": `application/json${spaces}x` };
      const replies: Reply[] = [];
      for (let i = 0; i < 3; i++) replies.push(await rig.post("/v1/chat/completions", { messages: "hi" }, { headers }));
      return namedOrClosed(replies);
    },
  },
  bodyProbe("49 MB of one text", () => `{"messages":"${"a".repeat(legalBytes)}"}`),
  bodyProbe("49 MB of escapes", () => `{"messages":"${"\\u0061".repeat(legalBytes / 6)}"}`),
  bodyProbe("49 MB of 200,000 values", () => {
    const value = `"${"a".repeat(legalBytes / valueCount - 3)}"`;
    return `{"messages":"hi","max_tokens":2,"metadata":{"x":[${Array(valueCount).fill(value).join()}]}}`;
  }),
  bodyProbe("200,000 levels", () => {
    const levels = valueCount - 10;
    return `{"messages":"hi","max_tokens":2,"metadata":{"x":${"[".repeat(levels)}${"]".repeat(levels)}}}`;
  }),
  bodyProbe("200,000 messages that are none", () => `{"messages":[${Array(valueCount).fill("1").join()}]}`),
  bodyProbe("49 MB of 200,000 names", () => {
    const count = valueCount - 10;
    const name = "k".repeat(legalBytes / count - 12);
    const pairs = Array.from({ length: count }, (_, i) => `"${name}${i}":1`).join();
    return `{"messages":"hi","max_tokens":2,"metadata":{${pairs}}}`;
  }),
];

/** Probe that sends the same body twice. The body is within all limits. */
function bodyProbe(name: string, body: () => string): ServerProbe {
  return {
    name,
    finding: 9,
    concerns: ["edge"],
    async run(rig) {
      const text = body();
      const replies: Reply[] = [];
      for (let i = 0; i < 2; i++) replies.push(await rig.post("/v1/chat/completions", text));
      return namedReplies(replies);
    },
  };
}

/** Fills the server's memory for bodies almost to its limit with large bodies, then fills the rest with many small ones. */
async function holdBodies(rig: Rig): Promise<Outcome> {
  const large = Buffer.from(heldBody(largestBytes));
  const sizes = [...Array(heldBodies - 1).fill(largestBytes), largestBytes - spareBytes];
  const sent: Promise<Reply>[] = [];
  for (const bytes of sizes) {
    sent.push(rig.post("/v1/chat/completions", bytes === largestBytes ? large : heldBody(bytes)));
    // The large bodies are sent one after another, so that the server accepts all of them.
    await sleep(sendingMs);
  }
  await sleep(sendingMs);
  const end = performance.now() + heldMs;
  const fill = async () => {
    while (performance.now() < end && !rig.signal.aborted) {
      const reply = rig.post("/v1/chat/completions", small);
      sent.push(reply);
      await Promise.all([reply, sleep(fillingMs)]);
    }
  };
  // Several small requests are sent at once, so that one of them always claims the memory that is freed by the end of a request of
  // the bystander (a well-behaved client).
  void Promise.all(Array.from({ length: fillers }, fill));
  await sleep(heldMs);
  return namedRepliesWithin(0, sent);
}

/** Returns a request of at least `bytes` bytes whose response is long. */
function heldBody(bytes: number): string {
  const fields = '{"messages":"Count to a million.","max_tokens":3500,"ignore_eos":true,"metadata":{"x":"';
  const end = '"}}';
  return `${fields}${"a".repeat(Math.max(0, bytes - fields.length - end.length))}${end}`;
}
