// Comparison of the llama engine and llama-server with the same adapter. Both servers run, and the rounds alternate between
// them.
import { findingsTable } from "../overload/finding.ts";
import { SizedPrompts } from "../serving/client/sized-prompts.ts";
import { answered, pairedRatios, ratioAtLeast, toldRounds } from "../serving/show.ts";
import { inRounds, ours, peers, type SideOptions, withSides } from "../serving/sides.ts";
import { type AdapterFiles, loraFlags, type Targets } from "./adapter-files.ts";
import { answersOf, type CrowdLoad, crowdLoad, type LoadShape, rates } from "./crowd.ts";
import { aliasesOf, plain, sizes } from "./forms.ts";

const crowds = [1, 8, 32] as const;
const leastShare = 1;

/** Returns a table for each number of clients. */
export async function peerTables(
  options: SideOptions,
  shape: LoadShape,
  files: AdapterFiles,
  targets: Targets,
): Promise<string[]> {
  const adapters = await files.take(1, targets);
  const aliases = aliasesOf(adapters);
  const starts = [
    ours(options, sizes, "ours", [...plain, "--engine", "llama", ...loraFlags(adapters)]),
    ...peers(options, sizes, ["--no-cache-prompt", "--lora", await files.gguf(targets)]),
  ];
  return await withSides(starts, async (sides) => {
    const prompts = await SizedPrompts.create(sides[0].url);
    // llama-server applies its one adapter to every request and has no field to select it.
    const load = ({ label, url }: (typeof sides)[number], texts: readonly string[]) =>
      crowdLoad(url, texts, label === "ours" ? aliases : [], shape);
    const tables: string[] = [];
    for (const count of crowds) {
      const texts = () => prompts.many(count, shape.promptTokens);
      for (const side of sides) await load(side, texts());
      const inputs = Array.from({ length: options.rounds }, texts);
      const [mine = [], theirs = []] = await inRounds(`adapters, ${count} at once`, sides, inputs, load);
      tables.push(comparison(`llama, one adapter (${targets}), ${count} at once`, mine, theirs));
    }
    return tables;
  });
}

function comparison(title: string, mine: readonly CrowdLoad[], theirs: readonly CrowdLoad[]): string {
  const firstTexts = (rounds: readonly CrowdLoad[]) => rounds.map(({ firstTextMs }) => firstTextMs);
  return findingsTable(title, [
    answered("answered, ours", answersOf(mine)),
    answered("answered, peer", answersOf(theirs)),
    toldRounds("tokens/s, ours", rates(mine), 1),
    toldRounds("tokens/s, peer", rates(theirs), 1),
    ratioAtLeast("tokens/s over the peer's", rates(mine), rates(theirs), leastShare),
    toldRounds("first text p50, ours", firstTexts(mine), 0, " ms"),
    toldRounds("first text p50, peer", firstTexts(theirs), 0, " ms"),
    toldRounds("first text over the peer's", pairedRatios(firstTexts(mine), firstTexts(theirs)), 3),
  ]);
}
