// Scenario `repeated`: a few clients that repeat the same few questions.
import { findingsTable } from "../overload/finding.ts";
import type { Question } from "../serving/client/ask.ts";
import { askAtOnce } from "../serving/client/crowd.ts";
import { SizedPrompts } from "../serving/client/sized-prompts.ts";
import { inRounds, ours, peers, type SideOptions, withSides } from "../serving/sides.ts";
import { crowdFindings } from "./crowd-findings.ts";

const clients = 8;
const promptCount = 4;
const promptTokens = 500;
const answerTokens = 32;
/** Number of times that each client asks each question. */
const repeats = 2;
const sizes = { sequences: clients, tokensEach: 2048 };

export function repeated(options: SideOptions): Promise<string> {
  return withSides([ours(options, sizes), ...peers(options, sizes)], async (sides) => {
    const prompts = await SizedPrompts.create(sides[0].url);
    const inputs = Array.from({ length: options.rounds }, () => questions(prompts));
    const measured = await inRounds("repeated", sides, inputs, ({ url }, asked) => askAtOnce(url, asked));
    const [mine = [], theirs] = measured;
    return findingsTable("repeated", crowdFindings(mine, theirs));
  });
}

/** Returns the questions of one round: every client asks all of them in turn, and each client begins with a different one. */
function questions(prompts: SizedPrompts): Question[][] {
  const asked = prompts.many(promptCount, promptTokens).map((content) => ({
    messages: [{ role: "user", content } as const],
    maxTokens: answerTokens,
    fields: { ignore_eos: true },
  }));
  return Array.from({ length: clients }, (_, client) =>
    Array.from({ length: promptCount * repeats }, (_, i) => asked[(client + i) % promptCount] as Question),
  );
}
