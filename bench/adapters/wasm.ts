// Cost of adapters on the wasm engine: sixteen adapters spread over all slots, compared with the same load on the base model.
import { findingsTable } from "../overload/finding.ts";
import { answered, ratioAtLeast, toldRounds } from "../serving/show.ts";
import type { SideOptions } from "../serving/sides.ts";
import type { AdapterFiles } from "./adapter-files.ts";
import { answersOf, type CrowdLoad, type LoadShape, rates } from "./crowd.ts";
import { aliasesOf, clients, compareForms, type Form } from "./forms.ts";

const adapterCount = 16;
const bars = { attention: 0.8, "all-linear": 0.65 } as const;

export async function wasmTable(options: SideOptions, shape: LoadShape, files: AdapterFiles): Promise<string> {
  const attention = await files.take(adapterCount, "attention");
  const linear = await files.take(adapterCount, "all-linear");
  const forms: readonly Form[] = [
    { label: "the model alone", aliases: [] },
    { label: "attention", aliases: aliasesOf(attention) },
    { label: "all-linear", aliases: aliasesOf(linear) },
  ];
  const adapters = [...attention, ...linear];
  const flags = ["--engine", "wasm", "--lora-max-adapters", String(adapters.length)];
  const measured = await compareForms("adapters, wasm", options, shape, { flags, adapters }, forms);
  const base = rates(measured[0] ?? []);
  const told = forms.flatMap(({ label }, form) => {
    const rounds: readonly CrowdLoad[] = measured[form] ?? [];
    return [
      answered(`answered, ${label}`, answersOf(rounds)),
      toldRounds(`tokens/s, ${label}`, rates(rounds), 1),
      toldRounds(
        `first text p50, ${label}`,
        rounds.map(({ firstTextMs }) => firstTextMs),
        0,
        " ms",
      ),
    ];
  });
  return findingsTable(`wasm, ${clients} at once`, [
    ...told,
    ratioAtLeast(`${adapterCount} adapters over none, attention`, rates(measured[1] ?? []), base, bars.attention),
    ratioAtLeast(`${adapterCount} adapters over none, all-linear`, rates(measured[2] ?? []), base, bars["all-linear"]),
  ]);
}
