import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { LoadResult, Outcome } from "../../../bench/serving/client/load.ts";
import { roundMetrics } from "../../../bench/serving/metrics.ts";
import { parseOptions } from "../../../bench/serving/options.ts";
import { loadTable } from "../../../bench/serving/report.ts";

const unknown = { peakMiB: null, frontDelayMs: null };

function outcome(change: Partial<Outcome> = {}): Outcome {
  const usage = { prompt_tokens: 10, completion_tokens: 5 };
  return { startMs: 100, firstTextMs: 150, lastTextMs: 190, endMs: 200, usage, error: null, ...change };
}

function round(outcomes: readonly Outcome[], wallMs = 1000) {
  const load: LoadResult = { wallMs, outcomes, gapsMs: [10, 10, 10, 10] };
  return roundMetrics(load, unknown);
}

describe("the report of a round", () => {
  it("computes rates over the wall time, and a token's time from the first text on", () => {
    const metrics = round([outcome(), outcome({ startMs: 140 })], 500);
    assert.equal(metrics.outputTokensPerSecond, 20);
    assert.equal(metrics.requestsPerSecond, 4);
    assert.deepEqual([metrics.firstTokenMs.p50, metrics.perTokenMs.p50, metrics.latencyMs.p50], [30, 10, 80]);
    assert.deepEqual([metrics.meanPromptTokens, metrics.meanOutputTokens], [10, 5]);
  });

  it("includes failed requests only in the errors", () => {
    const failed = outcome({ error: "429 queue_full", usage: null, firstTextMs: Number.NaN, endMs: 9999 });
    const metrics = round([outcome(), failed, failed]);
    assert.deepEqual(metrics.errors, { "429 queue_full": 2 });
    assert.deepEqual([metrics.requests, metrics.requestsPerSecond, metrics.latencyMs.p99], [3, 1, 100]);
  });

  it("shows medians of the rounds, every round, ratios against the peer, and what failed", () => {
    const ours = [round([outcome()], 1000), round([outcome()], 500), round([outcome({ error: "ECONNRESET" })])];
    const peers = [round([outcome()], 1000), round([outcome()], 1000), round([outcome()], 1000)];
    const text = loadTable({ load: { kind: "clients", amount: 8 }, ours, peers });
    assert.match(text, /^8 at once, 1 requests a round\n/);
    assert.match(text, /output tokens\/s +1\.000 +5\.0 +5\.0 10\.0 0\.0 +5\.0 +5\.0 5\.0 5\.0/);
    assert.match(text, /ours, round 3: 1 failed with "ECONNRESET"/);
    assert.doesNotMatch(text, /resident|C\+\+ bound|NaN/);
  });
});

describe("the flags of bench serving", () => {
  it("sweep over clients unless a rate is given", () => {
    const loads = (...flags: string[]) => parseOptions(["--url", "http://x", ...flags]).loads;
    assert.deepEqual(
      loads().map(({ amount }) => amount),
      [1, 8, 32],
    );
    assert.deepEqual(loads("--rate", "2.5"), [{ kind: "arrivals", amount: 2.5 }]);
    assert.throws(() => loads("--rate", "1", "--concurrency", "1"), /use one/);
    assert.throws(() => loads("--concurrency", "1,none"), /--concurrency expects numbers/);
  });

  it("need a server, or a command that starts one", () => {
    assert.throws(() => parseOptions([]), /--url, or --troupe-model/);
    assert.throws(() => parseOptions(["--url", "http://x", "--peer-server", "p"]), /--troupe-model/);
    assert.equal(parseOptions(["--troupe-model", "m.gguf"]).start.modelFile, "m.gguf");
  });

  it("accept the processes of each side, whose memory is measured", () => {
    const { server, peer } = parseOptions(["--url", "http://x", "--pid", "1,2", "--vs", "http://y", "--vs-pid", "3"]);
    assert.deepEqual([server?.pids, peer?.pids], [[1, 2], [3]]);
  });
});
