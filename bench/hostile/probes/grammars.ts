// Probes of the grammar threads: slow matchers, and compilations whose clients have disconnected.
import { setTimeout as sleep } from "node:timers/promises";
import { namedRepliesWithin, type Probe } from "../probe.ts";
import { summary } from "../rig/client.ts";

const ambiguousCount = 4;
/** Suppresses the end-of-generation tokens of the real model and of the tiny models. */
const neverEnd = { "0": -100, "2": -100 };
const abandonedCount = 5;
/** Time after which the client disconnects. By then its grammar has been translated and queued for compilation. */
const patienceMs = 500;
const matchedMs = 20_000;
const watchedMs = 15_000;

export const grammarProbes: readonly Probe[] = [
  {
    name: "ambiguous grammar",
    finding: 4,
    concerns: ["engine"],
    async run(rig) {
      const grammar = { type: "lark", value: 'start: start start | "a" | "b" | "c"' };
      // The cost of a token grows with the length of the text before it.
      const long = { grammar, max_tokens: 400, temperature: 1, logit_bias: neverEnd };
      return namedRepliesWithin(
        matchedMs,
        Array.from({ length: ambiguousCount }, () => rig.chat(long)),
      );
    },
  },
  {
    name: "five abandoned grammars",
    finding: 5,
    concerns: ["engine"],
    hasSchema: true,
    limitMs: 90_000,
    async run(rig) {
      const replies = await Promise.all(
        Array.from({ length: abandonedCount }, (_, i) =>
          rig.chat({ grammar: { type: "regex", value: slowPattern(i) } }, { signal: AbortSignal.timeout(patienceMs) }),
        ),
      );
      await sleep(watchedMs);
      return { attacker: summary(replies), isHeld: true };
    },
  },
];

/** Returns a different pattern for each `i`. Each takes many seconds to compile. */
function slowPattern(i: number): string {
  return `([a-z]{1,${40 + i}} ){1,400}`;
}
