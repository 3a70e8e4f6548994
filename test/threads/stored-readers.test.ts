// Owns the proof that readers of large stored responses cost the server little: neither its front's time nor its memory.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { StateFront } from "../../actors/state-front.ts";
import { createApp } from "../../http/app.ts";
import { type Listener, listen } from "../../http/listen.ts";
import { itemTexts } from "../../http/responses/item-texts.ts";
import { createLogger } from "../../runtime/log.ts";
import { FakeInference } from "../fixtures/fake-inference.ts";
import { loadableEdges, recordingLog } from "../fixtures/http-server.ts";

const id = `resp_${"0".repeat(32)}`;
const largeBytes = 45_000_000;
const readers = 50;
/** A crowd of readers held the front for 300 ms each, one after the other. */
const mostDelayMs = 1500;
const mostGrowth = 200 * 2 ** 20;
const limits = { maxEntries: 10, maxBytes: 2 ** 28, maxEntryBytes: 2 ** 26, maxAgeMs: 1e9 };

const crowd = fileURLToPath(new URL("../fixtures/overload/many-gets.js", import.meta.url));

async function lengthsOf(url: string): Promise<readonly number[]> {
  const { stdout } = await promisify(execFile)(process.execPath, [crowd, url, String(readers)]);
  return JSON.parse(stdout);
}

describe("readers of a large stored response", () => {
  const state = new StateFront({
    init: { folder: null, mailboxLimit: 4096, responses: limits },
    log: createLogger({ level: "silent", format: "text" }),
  });
  before(async () => {
    await state.start();
    const items = Array.from({ length: 1000 }, (_, i) => ({ id: `msg_${i}`, text: "x".repeat(largeBytes / 1000) }));
    await state.add({
      id,
      client: "client",
      previousId: null,
      isRunning: false,
      status: "completed",
      isBackground: false,
      body: Buffer.from(`{"id":"${id}","text":"${"y".repeat(5_000_000)}"`),
      interrupted: null,
      settings: Buffer.from(',"x":1}'),
      input: itemTexts(items),
      output: itemTexts([]),
      events: null,
    });
  });
  after(() => state.stop(1000));

  for (const edge of loadableEdges()) {
    it(`hold neither the front nor its memory on the ${edge} edge`, async () => {
      const log = recordingLog();
      const app = createApp({
        inference: new FakeInference(),
        log,
        storedResponses: state,
        config: { accessLog: false },
      });
      const listener: Listener = await listen(app, { host: "127.0.0.1", port: 0, edge, log });
      const url = `http://127.0.0.1:${listener.port}/v1/responses/${id}`;
      const delay = monitorEventLoopDelay({ resolution: 1 });
      const rssBefore = process.memoryUsage().rss;
      let rss = rssBefore;
      const watching = setInterval(() => {
        rss = Math.max(rss, process.memoryUsage().rss);
      }, 20);
      delay.enable();
      for (const [path, least] of [
        ["/input_items", 20 * 45_000],
        ["/input_items?limit=100&order=asc", 100 * 45_000],
        ["", 5_000_000],
      ] as const) {
        const lengths = await lengthsOf(url + path);
        assert.equal(lengths.length, readers);
        assert.ok(
          lengths.every((length) => length > least && length === lengths[0]),
          `${path}: ${lengths}`,
        );
      }
      clearInterval(watching);
      const heldMs = delay.max / 1e6;
      assert.ok(heldMs < mostDelayMs, `the front was held for ${heldMs} ms`);
      assert.ok(rss - rssBefore < mostGrowth, `${rss - rssBefore} bytes more`);
      listener.forceClose();
      await listener.closed;
    });
  }
});
