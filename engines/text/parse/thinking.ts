// Thinking tags: the texts around a model's thinking, found in its chat template. Used once per model, by the template and by
// choose-format.ts.
import type { ThinkingTags } from "./tool-format.ts";

const known: readonly ThinkingTags[] = [
  // After a message of the analysis channel, the next message begins like the first one, which the prompt's end begins.
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

/** The tags whose end, or whose channel, the template's source contains; null if the template has no thinking. */
export function thinkingTags(source: string): ThinkingTags | null {
  if (source.includes("<|channel|>")) return known[0] ?? null;
  return known.slice(1).find(({ end }) => source.includes(end)) ?? null;
}
