import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { createApp } from "../../../../http/app.ts";
import { renderMetrics } from "../../../../http/observe/metrics/reference.ts";
import { FakeInference } from "../../../fixtures/fakes/fake-inference.ts";
import { request } from "../../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../../fixtures/http-server.ts";

const reference = readFileSync(new URL("../../../../../docs/metrics.md", import.meta.url), "utf8");
const isLinux = process.platform === "linux";
const skip = isLinux ? false : "the list of process metrics is of Linux";

/** Returns the metrics in docs/metrics.md: their types by name. */
function documented(): Map<string, string> {
  return new Map([...reference.matchAll(/^\| `(\w+)` \| (\w+) \|/gm)].map(([, name = "", type = ""]) => [name, type]));
}

async function scrape(): Promise<string> {
  const app = createApp({ inference: new FakeInference(), log: recordingLog() });
  return (await request(app, "GET", "/metrics")).body;
}

describe("docs/metrics.md", () => {
  it("has the same help texts as the metrics", { skip }, () => {
    assert.equal(reference, renderMetrics(), "the metrics have changed: run `npm run docs`");
  });

  it("has every metric of a scrape, with its type", async () => {
    const known = documented();
    const types = [...(await scrape()).matchAll(/^# TYPE (\w+) (\w+)$/gm)];
    assert.ok(types.length > 20);
    for (const [, name = "", type] of types) assert.equal(known.get(name), type, name);
  });

  it("has names by the conventions of Prometheus", () => {
    // Excludes prom-client's own metrics: those of active handles, requests and resources end in _total although they are no
    // counters.
    const own = [...documented()].filter(([name]) => !name.startsWith("nodejs_active_"));
    const names = new Set(["service_kv_cache_blocks_total"]);
    for (const [name, type] of own) {
      assert.match(name, /^(http|service|process|nodejs)_[a-z0-9_]+$/);
      if (!names.has(name)) assert.equal(name.endsWith("_total"), type === "counter", name);
    }
  });
});

describe("the metrics of the process", () => {
  it("are those of this process, also with several apps in it", async () => {
    await scrape();
    const text = await scrape();
    const value = (name: string) => Number(new RegExp(`^${name} (.*)$`, "m").exec(text)?.[1]);
    assert.ok(value("process_resident_memory_bytes") > 10e6);
    assert.ok(value("process_cpu_seconds_total") > 0);
    assert.ok(value("nodejs_heap_size_used_bytes") > 1e6);
    assert.ok(Math.abs(value("process_start_time_seconds") - (Date.now() / 1000 - process.uptime())) < 5);
    if (isLinux) assert.ok(value("process_open_fds") > 2);
  });

  it("report how long the main thread's event loop was blocked", async () => {
    await scrape();
    await sleep(60);
    const until = performance.now() + 300;
    while (performance.now() < until);
    await sleep(60);
    const [, seconds] = /^nodejs_eventloop_lag_max_seconds (.*)$/m.exec(await scrape()) ?? [];
    assert.ok(Number(seconds) > 0.2, `${seconds}`);
  });
});

describe("the Grafana dashboard", () => {
  const text = readFileSync(new URL("../../../../../deploy/grafana/troupe.json", import.meta.url), "utf8");
  const dashboard = JSON.parse(text) as { panels: { title: string; targets?: { expr: string }[] }[] };
  const expressions = dashboard.panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr));

  it("uses only metrics that exist, of the right type", () => {
    const known = documented();
    assert.ok(expressions.length > 10);
    for (const expression of expressions) {
      const names = expression.match(/\b(?:http|service|process|nodejs)_\w+/g) ?? [];
      assert.ok(names.length > 0, expression);
      for (const name of names) {
        const histogram = /^(\w+)_(?:bucket|sum|count)$/.exec(name)?.[1];
        const isSeries = histogram !== undefined && known.get(histogram) === "histogram";
        assert.ok(isSeries || (known.has(name) && known.get(name) !== "histogram"), `${name} in ${expression}`);
      }
      for (const [, counted = ""] of expression.matchAll(/\brate\((\w+)/g)) {
        assert.match(known.get(counted.replace(/_(?:bucket|sum|count)$/, "")) ?? "", /counter|histogram/, expression);
      }
    }
  });

  it("has a title and a unit for every panel", () => {
    for (const { title } of dashboard.panels) assert.ok(title);
    assert.equal(new Set(dashboard.panels.map(({ title }) => title)).size, dashboard.panels.length);
  });
});
