// Thinking tags: finds, in a chat template, the tags before and after a model's reasoning. Called once per model, by
// the folder template/ and by choose-format.ts.
import type { ThinkingTags } from "./tool-format.ts";

const known: readonly ThinkingTags[] = [
  // `end` includes "<|start|>assistant", because the prompt also ends with this text. So the next message
  // is read like the first message.
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

/**
 * Returns the known tags whose end tag occurs in the template's source. A template with channels (gpt-oss) has the tags
 * of the analysis channel. Returns null if the template has no thinking.
 */
export function thinkingTags(source: string): ThinkingTags | null {
  if (source.includes("<|channel|>")) return known[0] ?? null;
  return known.slice(1).find(({ end }) => source.includes(end)) ?? null;
}
