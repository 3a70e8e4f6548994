// Probes of the resources that one client may hold: logprobs of whole responses, slots, queue entries.

import { namedReplies, namedRepliesWithin, type Outcome, type Probe } from "../probe.ts";
import { tinyModel } from "../rig/models.ts";
import type { Rig } from "../rig/rig.ts";

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

function occupy(rig: Rig, clients: number): Promise<Outcome> {
  const long = { messages: "Tell a very long story.", max_tokens: 4000, ignore_eos: true, stream: true };
  return namedRepliesWithin(
    watchedMs,
    Array.from({ length: clients }, () => rig.chat(long)),
  );
}
