// Scenario `chat`: one long conversation that sends its whole history with every turn.
import { median, table } from "../../cli/bench/report.ts";
import { atMost, findingsTable } from "../overload/finding.ts";
import {
  type Answer,
  ask,
  type ChatMessage,
  firstTextAfterMs,
  firstTextPercentiles,
  isWhole,
  sumOf,
} from "../serving/client/ask.ts";
import { SizedPrompts } from "../serving/client/sized-prompts.ts";
import { answered, ratioAtLeast, ratioAtMost, shown, toldRounds } from "../serving/show.ts";
import { inRounds, ours, peers, type Side, type SideOptions, withSides } from "../serving/sides.ts";

const turns = 20;
/** Tokens in the words of one user message. With the template's tokens and the response, a turn has about 150 tokens. */
const wordTokens = 68;
const answerTokens = 64;
const sizes = { sequences: 1, tokensEach: 8192 };
const system = "You are a patient storyteller. You always answer at length.";

/** One round on one server: one response per turn. */
type Conversation = readonly Answer[];

export function chat(options: SideOptions): Promise<string> {
  return withSides([ours(options, sizes), ...peers(options, sizes)], async (sides) => {
    const prompts = await SizedPrompts.create(sides[0].url);
    const inputs = Array.from({ length: options.rounds }, () => prompts.many(turns, wordTokens));
    const measured = await inRounds("chat", sides, inputs, converse);
    return `${findings(measured)}\n\n${turnTable(measured)}`;
  });
}

async function converse({ url }: Side, words: readonly string[]): Promise<Conversation> {
  const messages: ChatMessage[] = [{ role: "system", content: system }];
  const answers: Answer[] = [];
  for (const [turn, text] of words.entries()) {
    const request = turn === 0 ? "Tell me a long story in which these words come up" : "Go on, with these words";
    messages.push({ role: "user", content: `${request}: ${text}` });
    const answer = await ask(url, { messages, maxTokens: answerTokens });
    answers.push(answer);
    if (!isWhole(answer)) break;
    messages.push({ role: "assistant", content: answer.text });
  }
  return answers;
}

function findings([mine = [], theirs]: readonly (readonly Conversation[])[]): string {
  const computed = mine.map((answers) => sumOf(answers, computedTokens));
  const p50 = (rounds: readonly Conversation[]) => rounds.map((answers) => firstTextPercentiles(answers).p50);
  return findingsTable("chat", [
    answered("turns answered", mine.flat()),
    overNew("tokens computed over new", mine),
    toldRounds(
      "over new if answers were new too",
      mine.map((answers, round) => (computed[round] ?? 0) / (answers.at(-1)?.promptTokens ?? 0)),
      3,
    ),
    toldRounds("tokens of an answer", mine.map(answerLength), 1),
    toldRounds("first token", p50(mine), 0, " ms"),
    toldRounds("whole conversation", mine.map(wholeMs), 0, " ms"),
    ...(theirs
      ? [
          toldRounds("peer: tokens computed over new", theirs.map(computedOverNew), 3),
          toldRounds("peer: tokens of an answer", theirs.map(answerLength), 1),
          toldRounds("peer: first token", p50(theirs), 0, " ms"),
          ratioAtMost("first token over the peer's", p50(mine), p50(theirs), 1),
          ratioAtLeast("output tokens/s over the peer's", mine.map(rate), theirs.map(rate), 1),
        ]
      : []),
  ]);
}

function overNew(what: string, rounds: readonly Conversation[]) {
  const ratios = rounds.map(computedOverNew);
  return { ...atMost(what, median(ratios), 1.1), measured: shown(ratios, 3) };
}

function computedTokens({ promptTokens, cachedTokens }: Answer): number {
  return promptTokens - cachedTokens;
}

/** Returns the number of tokens in a turn's prompt that are in neither the previous prompt nor its response. */
function newTokens(answers: Conversation, turn: number): number {
  const before = answers[turn - 1];
  return (answers[turn]?.promptTokens ?? 0) - (before ? before.promptTokens + before.completionTokens : 0);
}

function computedOverNew(answers: Conversation): number {
  const fresh = answers.reduce((sum, _, turn) => sum + newTokens(answers, turn), 0);
  return sumOf(answers, computedTokens) / fresh;
}

function answerLength(answers: Conversation): number {
  return sumOf(answers, ({ completionTokens }) => completionTokens) / answers.length;
}

function wholeMs(answers: Conversation): number {
  return (answers.at(-1)?.endMs ?? Number.NaN) - (answers[0]?.startMs ?? Number.NaN);
}

function rate(answers: Conversation): number {
  return (1000 * sumOf(answers, ({ completionTokens }) => completionTokens)) / wholeMs(answers);
}

/** Table with a row for each turn: medians over the rounds. */
function turnTable(measured: readonly (readonly Conversation[])[]): string {
  const labels = ["ours", "peer"].slice(0, measured.length);
  const columns = ["prompt", "new", "computed", "first ms"];
  const header = ["turn", ...labels.flatMap((label) => columns.map((column) => `${label}: ${column}`))];
  const over = (rounds: readonly Conversation[], turn: number, value: (answer: Answer) => number) =>
    median(rounds.flatMap((answers) => answers.slice(turn, turn + 1).map(value))).toFixed(0);
  const rows = Array.from({ length: turns }, (_, turn) => [
    String(turn + 1),
    ...measured.flatMap((rounds) => [
      over(rounds, turn, ({ promptTokens }) => promptTokens),
      median(rounds.map((answers) => newTokens(answers, turn))).toFixed(0),
      over(rounds, turn, computedTokens),
      over(rounds, turn, firstTextAfterMs),
    ]),
  ]);
  return table(header, rows);
}
