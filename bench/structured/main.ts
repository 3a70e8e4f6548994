// `bench structured`: cost of responses that must match a JSON schema, compared with free responses, and effect of compiling
// new schemas on other streams.
import arg from "arg";
import { exactly, findingsTable } from "../overload/finding.ts";
import { report } from "../results.ts";
import { type Answer, isWhole, msPerToken, type Question, sumOf } from "../serving/client/ask.ts";
import { askAtOnce } from "../serving/client/crowd.ts";
import { SizedPrompts } from "../serving/client/sized-prompts.ts";
import { answered, ratioAtMost, toldRounds } from "../serving/show.ts";
import {
  inRounds,
  ours,
  peers,
  type Side,
  type SideOptions,
  sideFlags,
  sideOptions,
  sideUsage,
  withSides,
} from "../serving/sides.ts";
import { newSchemas } from "./new-schemas.ts";
import { endlessList, schemaFormat } from "./schemas.ts";

const promptTokens = 48;
const answerTokens = 160;
const crowds = [32, 1] as const;
const barAtMost = 1.1;
const request = "Write a long list of people who do not exist. Let these words come up:";
const free = { ignore_eos: true };
/**
 * Flags for a fair comparison. Without a prefix cache neither kind of response profits from the other's prompt. Drafts would
 * favour repetitive responses.
 */
const plain = ["--prefix-cache-n", "0", "--speculation", "off"];
const plainPeer = ["--no-cache-prompt"];

export const usage = `npm run bench -- structured [FLAGS]: cost of JSON schemas for responses, and of new schemas for other streams

  --clients N           number of simultaneous clients; repeatable
  --seconds 20          duration of the measurement with new schemas
${sideUsage}`;

export async function main(argv: readonly string[]): Promise<void> {
  const flags = arg({ ...sideFlags, "--seconds": Number, "--clients": [Number] }, { argv: [...argv] });
  const options = await sideOptions(flags, 3);
  const clients = flags["--clients"] ?? crowds;
  const sizes = { sequences: Math.max(...clients, 16), tokensEach: 1024 };
  const tables: string[] = [];
  for (const start of [ours(options, sizes, "ours", plain), ...peers(options, sizes, plainPeer)]) {
    await withSides([start], async ([side]) => {
      const prompts = await SizedPrompts.create(side.url);
      for (const count of clients) tables.push(await compare(side, options, count, prompts));
      tables.push(await newSchemas(side, prompts, flags["--seconds"] ?? 20));
    });
  }
  report(
    {
      name: "structured",
      title: "Answers that must fit a schema, over free ones",
      method:
        `Alternating rounds: ${options.rounds}; medians (of paired ratios) and each round. Streaming chat, greedy, about ` +
        `${promptTokens} tokens of words in, ${answerTokens} out whatever the form, the same prompts for both. ms a token: from ` +
        "first to last text of every stream, over the tokens in between. No prompts kept, no drafts. The bars are ours. " +
        `${options.threads} threads, clients on the same cores.`,
      body: tables.join("\n\n"),
    },
    options.save,
  );
}

async function compare(side: Side, options: SideOptions, clients: number, prompts: SizedPrompts): Promise<string> {
  const schema = { response_format: schemaFormat(endlessList) };
  // Compiles the schema before the measurement.
  await askAtOnce(side.url, [[question("", schema)]]);
  const forms = [
    { label: `${clients} at once, free`, fields: free },
    { label: `${clients} at once, schema`, fields: schema },
  ];
  const inputs = Array.from({ length: options.rounds }, () => prompts.many(clients, promptTokens));
  const measured = await inRounds(`structured, ${side.label}`, forms, inputs, async ({ fields }, texts) => {
    const { answers } = await askAtOnce(
      side.url,
      texts.map((text) => [question(text, fields)]),
    );
    return answers;
  });
  const [text = [], json = []] = measured;
  const answers = measured.flat(2);
  return findingsTable(`${side.label}, ${clients} at once`, [
    answered("answered", answers),
    exactly("of the structured ones, JSON so far", json.flat().filter(startsAsObject).length, json.flat().length),
    toldRounds("tokens of a free answer", text.map(meanLength), 1),
    toldRounds("tokens of a structured answer", json.map(meanLength), 1),
    toldRounds("free, ms a token", text.map(msPerToken), 2),
    toldRounds("structured, ms a token", json.map(msPerToken), 2),
    ratioAtMost("structured over free", json.map(msPerToken), text.map(msPerToken), barAtMost),
  ]);
}

function question(text: string, fields: Readonly<Record<string, unknown>>): Question {
  return { messages: [{ role: "user", content: `${request} ${text}` }], maxTokens: answerTokens, fields };
}

function startsAsObject({ text }: Answer): boolean {
  return /^\s*\{\s*"people"/.test(text);
}

function meanLength(answers: readonly Answer[]): number {
  const whole = answers.filter(isWhole);
  return sumOf(whole, ({ completionTokens }) => completionTokens) / whole.length;
}
