// Statistics of a remote model, in the same format as those of local models.
import type { EndCounts, ModelStatistics, RemoteUrlStatistics, SeriesLatencies } from "../messages.ts";

export interface RemoteCounts {
  readonly upstreams: readonly { readonly outstanding: number; readonly statistics: RemoteUrlStatistics }[];
  readonly slots: number;
  readonly waiting: number;
  readonly tokens: number;
  readonly promptTokens: number;
  readonly ended: EndCounts;
  readonly latencies: readonly SeriesLatencies[];
}

export function remoteStatistics({ upstreams, ...counts }: RemoteCounts): ModelStatistics {
  return {
    ...counts,
    running: upstreams.reduce((sum, { outstanding }) => sum + outstanding, 0),
    remote: upstreams.map(({ statistics }) => statistics),
    // Values that only a local engine has.
    ...{ preempted: 0, preemptions: 0, memoryPreemptions: 0, sharePreemptions: 0, steps: 0, engineMs: 0, totalMs: 0 },
    encoderCache: { hits: 0, misses: 0 },
    prefixCache: { lookups: 0, hits: 0, evictions: 0, reusedTokens: 0 },
    kvBlocks: { used: 0, total: 0 },
    adapters: { loaded: 0, switches: 0 },
    speculation: { drafts: 0, proposed: 0, accepted: 0, dropped: 0, acceptedAt: [] },
  };
}
