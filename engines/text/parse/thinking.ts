// Owns which texts a model puts around its thinking, found in its chat template. Asked once a model, by the template and by
// choose-format.ts.
import type { ThinkingTags } from "./tool-format.ts";

const known: readonly ThinkingTags[] = [
  // Where a message of the analysis channel is over, the next one begins as the prompt's end has begun the first.
  { begin: "<|channel|>analysis<|message|>", end: "<|end|><|start|>assistant" },
  { begin: "<|channel>thought\n", end: "<channel|>" },
  { begin: "<think>", end: "</think>" },
  { begin: "<thinking>", end: "</thinking>" },
  { begin: "<thought>", end: "</thought>" },
  { begin: "<reasoning>", end: "</reasoning>" },
  { begin: "<seed:think>", end: "</seed:think>" },
  { begin: "[THINK]", end: "[/THINK]" },
  { begin: "<|START_THINKING|>", end: "<|END_THINKING|>" },
];

/** The tags of which the template's source holds the end, or the channel; null where it knows of no thinking. */
export function thinkingTags(source: string): ThinkingTags | null {
  if (source.includes("<|channel|>")) return known[0] ?? null;
  return known.slice(1).find(({ end }) => source.includes(end)) ?? null;
}
