// Probes of what one client may hold: log probabilities of whole answers, slots, the queue (findings 7, 11).
import { setTimeout as sleep } from "node:timers/promises";
import { isNamed, type Reply, summary } from "../client.ts";
import { tinyModel } from "../models.ts";
import { namedReplies, type Outcome, type Probe } from "../probe.ts";
import type { Rig } from "../rig.ts";

const slots = 4;
const queue = 16;
const watchedMs = 15_000;

export const slotProbes: readonly Probe[] = [
  {
    name: "n x top_logprobs of two answers, heap of 220 MB",
    finding: 7,
    concerns: [],
    limitMs: 180_000,
    settings: async ({ folder }) => ({
      models: [await tinyModel(folder, "tiny")],
      nodeFlags: ["--max-old-space-size=220"],
      flags: ["--max-seqs", "64", "--kv-cache", "131072tokens"],
    }),
    async run(rig) {
      const fields = { n: 32, max_tokens: 1000, ignore_eos: true, logprobs: true, top_logprobs: 20, temperature: 1 };
      return namedReplies(await Promise.all([rig.chat(fields), rig.chat(fields)]));
    },
  },
  {
    name: "one client in all slots",
    finding: 11,
    concerns: ["engine"],
    settings: () => ({ flags: limits }),
    run: (rig) => occupy(rig, slots),
  },
  {
    name: "one client in all slots and the whole queue",
    finding: 11,
    concerns: ["engine"],
    settings: () => ({ flags: limits }),
    run: (rig) => occupy(rig, slots + 2 * queue),
  },
];

const limits = ["--max-seqs", String(slots), "--max-queue", String(queue)];

async function occupy(rig: Rig, clients: number): Promise<Outcome> {
  const replies: Reply[] = [];
  const long = { messages: "Tell a very long story.", max_tokens: 4000, ignore_eos: true, stream: true };
  const running = Array.from({ length: clients }, async () => {
    replies.push(await rig.chat(long));
  });
  await Promise.race([Promise.all(running), sleep(watchedMs)]);
  const rest = `${clients - replies.length} still running`;
  return { attacker: replies.length === 0 ? rest : `${summary(replies)}, ${rest}`, isHeld: replies.every(isNamed) };
}
