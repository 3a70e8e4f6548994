// Cost of more adapters in one forward pass on the llama engine: the same load spread over a growing number of adapters.
import { findingsTable } from "../overload/finding.ts";
import { answered, ratioAtLeast, toldRounds } from "../serving/show.ts";
import type { SideOptions } from "../serving/sides.ts";
import type { AdapterFiles, Targets } from "./adapter-files.ts";
import { answersOf, type LoadShape, rates } from "./crowd.ts";
import { aliasesOf, clients, compareForms } from "./forms.ts";

const counts = [1, 2, 4, 16] as const;
const leastShare = 0.2;

export async function curveTable(
  options: SideOptions,
  shape: LoadShape,
  files: AdapterFiles,
  targets: Targets,
): Promise<string> {
  const adapters = await files.take(Math.max(...counts), targets);
  const forms = counts.map((count) => ({
    label: `${count} adapter${count > 1 ? "s" : ""}`,
    aliases: aliasesOf(adapters.slice(0, count)),
  }));
  const server = { flags: ["--engine", "llama"], adapters };
  const measured = await compareForms("adapters, llama", options, shape, server, forms);
  const told = forms.flatMap(({ label }, form) => {
    const rounds = measured[form] ?? [];
    const pauses = rounds.map(({ gapP99Ms }) => gapP99Ms);
    return [
      answered(`answered, ${label}`, answersOf(rounds)),
      toldRounds(`tokens/s, ${label}`, rates(rounds), 1),
      toldRounds(`pause between tokens p99, ${label}`, pauses, 0, " ms"),
    ];
  });
  const [one = [], most = []] = [measured[0], measured.at(-1)];
  return findingsTable(`llama, ${clients} at once, ${targets}`, [
    ...told,
    ratioAtLeast(`${counts.at(-1)} adapters over one`, rates(most), rates(one), leastShare),
  ]);
}
