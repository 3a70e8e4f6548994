// The part of node:perf_hooks that the engine uses.

export const performance: Performance = globalThis.performance;
