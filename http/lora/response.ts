// Responses of the LoRA routes: schemas of an adapter and of the list, and functions that build them.
import { z } from "zod";
import type { AdapterFailure, AdapterListing, LoadedAdapter } from "../../actors/api/lora-adapters.ts";

const count = z.int().min(0);
const generation = z
  .string()
  .meta({ description: "SHA-256 of the adapter's effect on the model, 64 hexadecimal digits." });
const bytes = count.meta({ description: "Memory in bytes." });

export const loraAdapterSchema = z
  .strictObject({
    id: z.string().meta({ description: "Alias of the adapter in requests." }),
    object: z.literal("lora_adapter"),
    source: z
      .string()
      .optional()
      .meta({ description: "Source of the adapter; absent if requests cannot load adapters." }),
    revision: z
      .string()
      .optional()
      .meta({ description: "Revision of a source on the model hub; absent together with `source`." }),
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
  retired: z.boolean().meta({ description: "No alias refers to it; it is freed with the last request that uses it." }),
  active_leases: count.meta({ description: "Number of requests that use it." }),
});

const failedAdapter = z.strictObject({
  id: z.string().meta({ description: "Alias of the adapter." }),
  replica: z.string().meta({ description: "Replica that cannot load it; its log names it at the start." }),
  source: z.string(),
  error: z.strictObject({ code: z.string(), message: z.string() }),
});

export const loraAdapterListSchema = z
  .strictObject({
    object: z.literal("list"),
    data: z.array(loraAdapterSchema),
    failed: z.array(failedAdapter).meta({
      description: "Adapters that clients have loaded on one replica (state_url) and another one cannot load.",
    }),
    generations: z.array(residentGeneration).meta({ description: "All generations in memory." }),
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

/** Builds the JSON of an adapter. `isSourceShown`: include the adapter's source; true only if requests may load adapters. */
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

export function wireListing(
  listing: AdapterListing,
  failures: readonly AdapterFailure[],
  areSourcesShown: boolean,
): WireLoraAdapterList {
  const { adapters, generations, residentBytes, maxAdapters, maxRank, maxBytes } = listing;
  return {
    object: "list",
    data: adapters.map((adapter) => wireAdapter(adapter, areSourcesShown)),
    failed: failures.map(({ alias, replica, source, code, message }) => {
      return { id: alias, replica, source, error: { code, message } };
    }),
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
