// `bench adapters`: cost of LoRA adapters, measured over HTTP.
import arg from "arg";
import { ServerError } from "../../runtime/errors.ts";
import { report } from "../results.ts";
import { type SideOptions, sideFlags, sideOptions, sideUsage } from "../serving/sides.ts";
import { AdapterFiles, adapterRank, type Targets } from "./adapter-files.ts";
import { churnTable } from "./churn.ts";
import type { LoadShape } from "./crowd.ts";
import { curveTable } from "./curve.ts";
import { peerTables } from "./peer.ts";
import { wasmTable } from "./wasm.ts";

const partNames = ["wasm", "peer", "curve", "churn"] as const;
type Part = (typeof partNames)[number];
const targetNames = ["attention", "all-linear"] as const;

export const usage = `npm run bench -- adapters [FLAGS]: cost of LoRA adapters, measured over HTTP

  --part PART           wasm, peer, curve or churn; repeatable; default: all
  --targets all-linear  matrices that the adapters change: attention or all-linear
  --answer-tokens 128   tokens of each response
  --changes 1000        number of loads, replacements and unloads of adapters in the part churn
${sideUsage}`;

export async function main(argv: readonly string[]): Promise<void> {
  const flags = arg(
    { ...sideFlags, "--part": [String], "--targets": String, "--answer-tokens": Number, "--changes": Number },
    { argv: [...argv] },
  );
  const options = await sideOptions(flags, 3);
  const parts = partsOf(flags["--part"], options);
  const targets = oneOf("--targets", flags["--targets"] ?? "all-linear", targetNames);
  const shape: LoadShape = { promptTokens: 48, answerTokens: flags["--answer-tokens"] ?? 128 };
  const files = new AdapterFiles(options.model);
  const tables: string[] = [];
  try {
    for (const part of parts)
      tables.push(...(await measured(part, options, shape, { files, targets, changes: flags["--changes"] ?? 1000 })));
  } finally {
    files.remove();
  }
  report(
    {
      name: "adapters",
      title: "LoRA adapters",
      method:
        `Alternating rounds: ${options.rounds}; medians (of paired ratios) and each round. Streaming chat, greedy, about ` +
        `${shape.promptTokens} tokens of words in, ${shape.answerTokens} out, the same prompts for all that is compared. Random ` +
        `adapters of rank ${adapterRank}; clients take them in turn. tokens/s: of all answers, from the first request to the ` +
        "last answer's end. A pause is the time between two texts of one stream. No prompts kept, no drafts. " +
        `${options.threads} threads, clients on the same cores.`,
      body: tables.join("\n\n"),
    },
    options.save,
  );
}

async function measured(
  part: Part,
  options: SideOptions,
  shape: LoadShape,
  { files, targets, changes }: { readonly files: AdapterFiles; readonly targets: Targets; readonly changes: number },
): Promise<string[]> {
  switch (part) {
    case "wasm":
      return [await wasmTable(options, shape, files)];
    case "peer":
      return await peerTables(options, shape, files, targets);
    case "curve":
      return [await curveTable(options, shape, files, targets)];
    case "churn":
      return [await churnTable(options, files, changes)];
    default:
      return part satisfies never;
  }
}

function partsOf(named: readonly string[] | undefined, { peerProgram }: SideOptions): readonly Part[] {
  const parts = named?.map((name) => oneOf("--part", name, partNames));
  if (parts === undefined) return partNames.filter((part) => part !== "peer" || peerProgram !== null);
  if (!parts.includes("peer") || peerProgram !== null) return parts;
  throw new ServerError("config_invalid", "--part peer expects --peer-server with the path of a llama-server");
}

function oneOf<T extends string>(flag: string, value: string, allowed: readonly T[]): T {
  const known = allowed.find((name) => name === value);
  if (known !== undefined) return known;
  throw new ServerError("config_invalid", `${flag} expects ${allowed.join(", ")}; got "${value}"`);
}
