// `bench everyday`: sends thirty everyday prompts with default settings and several seeds. Counts the answers that end
// before the token limit, the answers that repeat themselves, and the answers whose first words follow the instruction.
// Compares them with llama-server and its own default settings.

import { basename } from "node:path";
import arg from "arg";
import { builtInSampling } from "../../engines/sampling-defaults.ts";
import { report } from "../results.ts";
import { type Answer, ask, isWhole } from "../serving/client/ask.ts";
import { ours, peers, type Side, sideFlags, sideOptions, sideUsage, withSides } from "../serving/sides.ts";
import { judge, type Verdict } from "./judge.ts";
import { everydayPrompts } from "./prompts.ts";

const sizes = { sequences: 12, tokensEach: 1024 };

export const usage = `npm run bench -- everyday [FLAGS]: ${everydayPrompts.length} everyday prompts with default settings

  --cap 512             token limit; an answer that reaches it counts as not ended
  --rounds 3            number of seeds for each prompt
${sideUsage}`;

interface Judged {
  readonly seed: number;
  readonly prompt: string;
  readonly answer: Answer;
  readonly verdict: Verdict;
}

export async function main(argv: readonly string[]): Promise<void> {
  const flags = arg({ ...sideFlags, "--cap": Number }, { argv: [...argv] });
  const options = await sideOptions(flags, 3);
  const cap = flags["--cap"] ?? 512;
  const sides: { label: string; judged: Judged[] }[] = [];
  for (const start of [ours(options, sizes), ...peers(options, sizes)]) {
    const judged = await withSides([start], ([side]) => runPrompts(side, options.rounds, cap));
    sides.push({ label: start.label, judged });
    // Results are shown after each server, because the next server may fail to start.
    process.stderr.write(`${summary(sides)}\n${faults(start.label, judged)}\n`);
  }
  const { temperature, topK, topP, minP } = builtInSampling;
  report(
    {
      name: "everyday",
      title: "Everyday prompts",
      method:
        `${everydayPrompts.length} prompts, ${options.rounds} seeds each, on ${basename(options.model)}, default settings ` +
        `(temperature ${temperature}, top_k ${topK}, top_p ${topP}, min_p ${minP} unless the model has its own), at most ` +
        `${cap} tokens. Ended: by the model, not by that limit. Loop: six words occur four times. Followed: the first words ` +
        "are what the prompt asks for (bench/everyday/prompts.ts). The peer is llama-server with its own defaults.",
      body: [summary(sides), ...sides.map(({ label, judged }) => faults(label, judged))].join("\n\n"),
    },
    options.save,
  );
}

/** Asks every prompt with every seed, as many at a time as the server has slots. */
async function runPrompts({ label, url }: Side, seeds: number, cap: number): Promise<Judged[]> {
  const questions = Array.from({ length: seeds }, (_, seed) =>
    everydayPrompts.map((prompt) => ({ prompt, seed })),
  ).flat();
  const judged: Judged[] = [];
  const waiting = questions.values();
  const worker = async () => {
    for (const { prompt, seed } of waiting) {
      // `temperature: undefined` leaves the field out, so that the server's default applies.
      const fields = { temperature: undefined, seed: seed + 1 };
      const answer = await ask(url, { messages: [{ role: "user", content: prompt.text }], maxTokens: cap, fields });
      if (!isWhole(answer)) throw new Error(`${label}: "${prompt.text}": ${answer.error}`);
      const verdict = judge(prompt, answer.text, answer.completionTokens < cap);
      judged.push({ seed, prompt: prompt.text, answer, verdict });
      process.stderr.write(`everyday, ${label}: ${judged.length} of ${questions.length}\n`);
    }
  };
  await Promise.all(Array.from({ length: sizes.sequences }, worker));
  return judged;
}

function summary(sides: readonly { label: string; judged: readonly Judged[] }[]): string {
  const row = (name: string, value: (judged: readonly Judged[]) => string) =>
    `${name.padEnd(24)}${sides.map(({ judged }) => value(judged).padStart(12)).join("")}`;
  const share = (key: keyof Verdict) => (judged: readonly Judged[]) =>
    `${judged.filter(({ verdict }) => verdict[key]).length} of ${judged.length}`;
  const tokens = (judged: readonly Judged[]) =>
    (judged.reduce((sum, { answer }) => sum + answer.completionTokens, 0) / judged.length).toFixed(0);
  return [
    `${"".padEnd(24)}${sides.map(({ label }) => label.padStart(12)).join("")}`,
    row("answers that ended", share("isEnded")),
    row("loops", share("isLoop")),
    row("instructions followed", share("isFollowed")),
    row("tokens per answer", tokens),
  ].join("\n");
}

/** Lists the answers that did not end or that loop, with the end of their text. */
function faults(label: string, judged: readonly Judged[]): string {
  const lines = judged
    .filter(({ verdict }) => !verdict.isEnded || verdict.isLoop)
    .map(({ prompt, seed, answer, verdict }) => {
      const what = [...(verdict.isEnded ? [] : ["cut off"]), ...(verdict.isLoop ? ["loop"] : [])].join(", ");
      return `  ${what}: ${prompt} (seed ${seed + 1}) …${JSON.stringify(answer.text.slice(-80))}`;
    });
  return [`${label}, cut off or looping: ${lines.length}`, ...lines].join("\n");
}
