// Usage (token counts and times) of a request with several generations.
import type { Usage } from "./generation.ts";

/** Returns the total usage of two generations of one request, which may have run at the same time. */
export function addedUsage(one: Usage, other: Usage): Usage {
  const startedAt = Math.min(one.timeline.startedAt, other.timeline.startedAt);
  const endedAt = Math.max(one.timeline.endedAt, other.timeline.endedAt);
  const totalSeconds = Math.max(one.totalSeconds, other.totalSeconds, (endedAt - startedAt) / 1000);
  return {
    promptTokens: one.promptTokens + other.promptTokens,
    cachedTokens: one.cachedTokens + other.cachedTokens,
    completionTokens: one.completionTokens + other.completionTokens,
    reasoningTokens: one.reasoningTokens + other.reasoningTokens,
    promptSeconds: Math.min(one.promptSeconds + other.promptSeconds, totalSeconds),
    completionSeconds: Math.min(one.completionSeconds + other.completionSeconds, totalSeconds),
    totalSeconds,
    timeline: {
      startedAt,
      queuedAt: Math.min(one.timeline.queuedAt, other.timeline.queuedAt),
      scheduledAt: Math.min(one.timeline.scheduledAt, other.timeline.scheduledAt),
      firstTokenAt: Math.min(one.timeline.firstTokenAt, other.timeline.firstTokenAt),
      endedAt,
    },
  };
}
