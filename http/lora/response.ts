// Owns what the routes of LoRA adapters answer: the schemas of an adapter and of the list, and how they are filled in.
import { z } from "zod";
import type { AdapterListing, LoadedAdapter } from "../../actors/api/lora-adapters.ts";

const count = z.int().min(0);
const generation = z.string().meta({ description: "sha256 of what it does to the model, 64 hex digits" });
const bytes = count.meta({ description: "What it holds of memory" });

export const loraAdapterSchema = z
  .strictObject({
    id: z.string().meta({ description: "The name that requests choose it by" }),
    object: z.literal("lora_adapter"),
    source: z
      .string()
      .optional()
      .meta({ description: "Where it came from; left out where requests cannot load adapters" }),
    revision: z.string().optional().meta({ description: "Of a source on the model hub; left out with it" }),
    generation,
    rank: count,
    bytes,
  })
  .meta({ id: "LoraAdapter" });

const residentGeneration = z.strictObject({
  generation,
  aliases: z.array(z.string()),
  rank: count,
  bytes,
  retired: z.boolean().meta({ description: "No name stands for it; it goes with the last request that uses it" }),
  active_leases: count.meta({ description: "Requests that use it" }),
});

export const loraAdapterListSchema = z
  .strictObject({
    object: z.literal("list"),
    data: z.array(loraAdapterSchema),
    generations: z.array(residentGeneration).meta({ description: "All that are in memory" }),
    resident_generations: count,
    retired_generations: count,
    resident_bytes: count,
    max_adapters: count,
    max_rank: count,
    max_bytes: count,
  })
  .meta({ id: "LoraAdapterList" });

type WireLoraAdapter = z.output<typeof loraAdapterSchema>;
type WireLoraAdapterList = z.output<typeof loraAdapterListSchema>;

/** `isSourceShown`: only to whom it may name one. */
export function wireAdapter(adapter: LoadedAdapter, isSourceShown: boolean): WireLoraAdapter {
  const { alias, source, revision, generation, rank, bytes } = adapter;
  return {
    id: alias,
    object: "lora_adapter",
    ...(isSourceShown ? { source, ...(revision === null ? {} : { revision }) } : {}),
    generation,
    rank,
    bytes,
  };
}

export function wireListing(listing: AdapterListing, areSourcesShown: boolean): WireLoraAdapterList {
  const { adapters, generations, residentBytes, maxAdapters, maxRank, maxBytes } = listing;
  return {
    object: "list",
    data: adapters.map((adapter) => wireAdapter(adapter, areSourcesShown)),
    generations: generations.map(({ activeLeases, generation, aliases, rank, bytes, retired }) => {
      return { generation, aliases: [...aliases], rank, bytes, retired, active_leases: activeLeases };
    }),
    resident_generations: generations.length,
    retired_generations: generations.filter(({ retired }) => retired).length,
    resident_bytes: residentBytes,
    max_adapters: maxAdapters,
    max_rank: maxRank,
    max_bytes: maxBytes,
  };
}
