// Scenario `agents`: many simultaneous clients whose prompts share a long prefix that is not cached yet.
import { findingsTable } from "../overload/finding.ts";
import type { Question } from "../serving/client/ask.ts";
import { askAtOnce, firstTextP50 } from "../serving/client/crowd.ts";
import { SizedPrompts } from "../serving/client/sized-prompts.ts";
import { ratioAtMost } from "../serving/show.ts";
import { inRounds, ours, peers, type SideOptions, withSides } from "../serving/sides.ts";
import { crowdFindings, sideFindings } from "./crowd-findings.ts";

const clients = 32;
const systemTokens = 2048;
const ownTokens = 16;
const answerTokens = 32;
const sizes = { sequences: clients, tokensEach: 2304 };

export function agents(options: SideOptions): Promise<string> {
  const starts = [
    ours(options, sizes),
    ours(options, sizes, "cache off", ["--prefix-cache-n", "0"]),
    ...peers(options, sizes),
  ];
  return withSides(starts, async (sides) => {
    const prompts = await SizedPrompts.create(sides[0].url);
    const inputs = Array.from({ length: options.rounds }, () => questions(prompts));
    const measured = await inRounds("agents", sides, inputs, ({ url }, asked) => askAtOnce(url, asked));
    const [mine = [], off = [], theirs] = measured;
    return findingsTable("agents", [
      ...crowdFindings(mine, theirs),
      ...sideFindings("cache off", off),
      ratioAtMost("first token over cache off", mine.map(firstTextP50), off.map(firstTextP50), 0.15),
    ]);
  });
}

/** Returns the questions of one round: a new system prompt, and one question for each client. */
function questions(prompts: SizedPrompts): Question[][] {
  const system = { role: "system", content: prompts.take(systemTokens) } as const;
  return prompts
    .many(clients, ownTokens)
    .map((content) => [
      { messages: [system, { role: "user", content }], maxTokens: answerTokens, fields: { ignore_eos: true } },
    ]);
}
