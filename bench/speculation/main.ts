// `bench speculation`: decode speed of one client with speculative decoding, divided by the same server's speed without
// speculative decoding.
import arg from "arg";
import { exactly, type Finding, findingsTable, told } from "../overload/finding.ts";
import { report } from "../results.ts";
import { type Answer, ask, msPerToken } from "../serving/client/ask.ts";
import { type EngineMetrics, engineMetrics, growth } from "../serving/engine-metrics.ts";
import { answered, pairedRatios, ratioAtLeast, shown, toldRounds } from "../serving/show.ts";
import { inRounds, ours, peers, type Side, sideFlags, sideOptions, sideUsage, withSides } from "../serving/sides.ts";
import { type Task, tasksOf } from "./tasks.ts";

const sizes = { sequences: 1, tokensEach: 2048 };
/** Flags of llama-server's prompt lookup. */
const peerDrafts = ["--spec-type", "ngram-simple"];

interface Measured {
  readonly answer: Answer;
  /** Number of drafted tokens; null if the server does not report it. */
  readonly proposed: number | null;
  readonly accepted: number | null;
}

export const usage = `npm run bench -- speculation [FLAGS]: one client's tokens/s with speculative decoding, relative to without

  --tokens 400          tokens of each response
${sideUsage}`;

export async function main(argv: readonly string[]): Promise<void> {
  const flags = arg({ ...sideFlags, "--tokens": Number }, { argv: [...argv] });
  const options = await sideOptions(flags, 5);
  const maxTokens = flags["--tokens"] ?? 400;
  const starts = [
    ours(options, sizes),
    ours(options, sizes, "off", ["--speculation", "off"]),
    ...peers(options, sizes, peerDrafts),
  ];
  const tables = await withSides(starts, async (sides) => {
    const shownTables: string[] = [];
    for (const [index, { name }] of tasksOf(0).entries()) {
      // The first round of a task is dropped, because it computes the prompt and warms up compiled code.
      const inputs = Array.from({ length: options.rounds + 1 }, (_, round) => tasksOf(round)[index] as Task);
      const measured = await inRounds(`speculation, ${name}`, sides, inputs, (side, task) =>
        measure(side, task, maxTokens),
      );
      shownTables.push(
        findingsTable(
          name,
          findings(
            inputs[0] as Task,
            measured.map((rounds) => rounds.slice(1)),
          ),
        ),
      );
    }
    return shownTables;
  });
  report(
    {
      name: "speculation",
      title: "Drafted tokens, for one client",
      method:
        `Alternating rounds: ${options.rounds}; medians (of paired ratios) and each round. ${maxTokens} tokens out; decode ` +
        "tokens/s are those between first and last text. Off is the same server with --speculation off. The peer is " +
        `llama-server with ${peerDrafts.join(" ")}. ${options.threads} threads, client on the same cores.`,
      body: tables.join("\n\n"),
    },
    options.save,
  );
}

async function measure({ url }: Side, { messages, fields }: Task, maxTokens: number): Promise<Measured> {
  const before = await engineMetrics(url);
  const answer = await ask(url, { messages, maxTokens, fields });
  const after = await engineMetrics(url);
  return { answer, proposed: drafted("proposed", before, after), accepted: drafted("accepted", before, after) };
}

function drafted(what: "proposed" | "accepted", before: EngineMetrics, after: EngineMetrics): number | null {
  return growth(`service_speculative_draft_tokens_${what}_total`, before, after);
}

function findings({ bar }: Task, [drafting = [], off = [], peer]: readonly (readonly Measured[])[]): Finding[] {
  const rates = (rounds: readonly Measured[]) => rounds.map(({ answer }) => 1000 / msPerToken([answer]));
  const all = [...drafting, ...off, ...(peer ?? [])];
  const same = drafting.filter(({ answer }, round) => answer.text === off[round]?.answer.text);
  return [
    answered(
      "answered",
      all.map(({ answer }) => answer),
    ),
    exactly("the same text as without drafts", same.length, drafting.length),
    told("tokens of prompt / answer", lengths(drafting)),
    told("tokens drafted / of them right", acceptance(drafting)),
    toldRounds("decode tokens/s", rates(drafting), 1),
    toldRounds("decode tokens/s, off", rates(off), 1),
    ratioAtLeast("over off", rates(drafting), rates(off), bar),
    ...(peer
      ? [
          toldRounds("peer: decode tokens/s", rates(peer), 1),
          toldRounds("over the peer", pairedRatios(rates(drafting), rates(peer)), 3),
        ]
      : []),
  ];
}

function lengths(rounds: readonly Measured[]): string {
  const { promptTokens, completionTokens } = rounds[0]?.answer ?? { promptTokens: 0, completionTokens: 0 };
  return `${promptTokens} / ${completionTokens}`;
}

function acceptance(rounds: readonly Measured[]): string {
  const values = (pick: (one: Measured) => number | null) => rounds.map(pick).filter((value) => value !== null);
  const [proposed, accepted] = [values((one) => one.proposed), values((one) => one.accepted)];
  return proposed.length === 0 ? "not told" : `${shown(proposed, 0)} / ${shown(accepted, 0)}`;
}
