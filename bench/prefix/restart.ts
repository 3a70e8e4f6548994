// Scenario `restart`: a long prompt, a clean stop, a restart with the same prefix cache folder, and the same prompt again.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { findingsTable, told } from "../overload/finding.ts";
import { type Answer, ask, firstTextAfterMs } from "../serving/client/ask.ts";
import { SizedPrompts } from "../serving/client/sized-prompts.ts";
import { answered, ratioAtMost, toldRounds } from "../serving/show.ts";
import { ours, type SideOptions, withSides } from "../serving/sides.ts";

const promptTokens = 4096;
const answerTokens = 8;
const sizes = { sequences: 2, tokensEach: 8192 };

interface Restart {
  readonly cold: Answer;
  readonly again: Answer;
}

export async function restart(options: SideOptions): Promise<string> {
  const rounds: Restart[] = [];
  for (let round = 0; round < options.rounds; round++) {
    process.stderr.write(`restart, round ${round + 1} of ${options.rounds}\n`);
    rounds.push(await once(options, round));
  }
  const cold = rounds.map((one) => firstTextAfterMs(one.cold));
  const again = rounds.map((one) => firstTextAfterMs(one.again));
  const answers = rounds.flatMap((one) => [one.cold, one.again]);
  return findingsTable("restart", [
    answered("answered", answers),
    toldRounds(
      "tokens of the prompt",
      rounds.map((one) => one.cold.promptTokens),
      0,
    ),
    toldRounds(
      "of them cached after the restart",
      rounds.map((one) => one.again.cachedTokens),
      0,
    ),
    told("answers that differ", String(rounds.filter(({ cold, again }) => cold.text !== again.text).length)),
    toldRounds("first token, cold", cold, 0, " ms"),
    toldRounds("first token, after the restart", again, 0, " ms"),
    ratioAtMost("after the restart over cold", again, cold, 0.2),
  ]);
}

async function once(options: SideOptions, round: number): Promise<Restart> {
  const folder = mkdtempSync(join(tmpdir(), "troupe-prefix-"));
  const removeWithUs = () => rmSync(folder, { recursive: true, force: true });
  process.once("exit", removeWithUs);
  const start = ours(options, sizes, "ours", ["--prefix-cache-dir", folder]);
  try {
    const [cold, content] = await withSides([start], async ([{ url }]) => {
      const text = (await SizedPrompts.create(url, round)).take(promptTokens);
      return [await askLong(url, text), text] as const;
    });
    return { cold, again: await withSides([start], ([{ url }]) => askLong(url, content)) };
  } finally {
    process.off("exit", removeWithUs);
    removeWithUs();
  }
}

function askLong(url: URL, content: string): Promise<Answer> {
  return ask(url, { messages: [{ role: "user", content }], maxTokens: answerTokens, fields: { ignore_eos: true } });
}
