// Comparison of loads that differ only in their adapters. All loads use one server, in alternating rounds with the same texts.

import { SizedPrompts } from "../serving/client/sized-prompts.ts";
import { inRounds, ours, type SideOptions, withSides } from "../serving/sides.ts";
import { type AdapterFile, loraFlags } from "./adapter-files.ts";
import { type CrowdLoad, crowdLoad, type LoadShape } from "./crowd.ts";

export const clients = 32;
export const sizes = { sequences: clients, tokensEach: 512 };
/**
 * Flags that switch off the prefix cache and speculative decoding. A prefix cache would favour later loads, and speculative
 * decoding would favour repetitive texts.
 */
export const plain = ["--prefix-cache-n", "0", "--speculation", "off"];

export interface Form {
  readonly label: string;
  /** Aliases that the clients use in turn; empty for the base model only. */
  readonly aliases: readonly string[];
}

export async function compareForms(
  name: string,
  options: SideOptions,
  shape: LoadShape,
  server: { readonly flags: readonly string[]; readonly adapters: readonly AdapterFile[] },
  forms: readonly Form[],
): Promise<CrowdLoad[][]> {
  const flags = [...plain, ...server.flags, ...loraFlags(server.adapters)];
  return await withSides([ours(options, sizes, "ours", flags)], async ([{ url }]) => {
    const prompts = await SizedPrompts.create(url);
    const texts = () => prompts.many(clients, shape.promptTokens);
    for (const { aliases } of forms) await crowdLoad(url, texts(), aliases, { ...shape, answerTokens: 8 });
    const inputs = Array.from({ length: options.rounds }, texts);
    return await inRounds(name, forms, inputs, ({ aliases }, input) => crowdLoad(url, input, aliases, shape));
  });
}

export function aliasesOf(files: readonly AdapterFile[]): string[] {
  return files.map(({ alias }) => alias);
}
