// Clients that read large stored responses: they must neither block the main thread nor fill its memory.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { StateClient } from "../../../actors/front/state-client.ts";
import { createApp } from "../../../http/app.ts";
import { itemTexts } from "../../../http/responses/request/item-texts.ts";
import { type Listener, listen } from "../../../http/server/listen.ts";
import { createLogger } from "../../../runtime/log/log.ts";
import { done, FakeInference, finish, text } from "../../fixtures/fakes/fake-inference.ts";
import { loadableEdges, recordingLog } from "../../fixtures/http-server.ts";

const id = `resp_${"0".repeat(32)}`;
const largeBytes = 45_000_000;
const readers = 50;
/** Maximum delay of the event loop in ms. In an earlier version, each reader blocked the main thread for 300 ms. */
const mostDelayMs = 1500;
/**
 * Maximum delay of the event loop in ms while clients read the events of a running response. In an earlier
 * version, these readers blocked the main thread for 0.8 to 1.9 s and used 560 to 820 MB.
 */
const mostEventDelayMs = 500;
const mostEventGrowth = 400e6;
const mostGrowth = 200 * 2 ** 20;
const limits = { maxEntries: 10, maxBytes: 2 ** 28, maxEntryBytes: 2 ** 26, maxAgeMs: 1e9 };

const crowd = fileURLToPath(new URL("../../fixtures/overload/many-gets.js", import.meta.url));

async function lengthsOf(url: string, count = readers): Promise<readonly number[]> {
  const { stdout } = await promisify(execFile)(process.execPath, [crowd, url, String(count)]);
  return JSON.parse(stdout);
}

/** Measures the maximum delay of the main thread's event loop and the growth of the process's memory. */
class Watch {
  readonly #delay = monitorEventLoopDelay({ resolution: 1 });
  readonly #rssBefore = process.memoryUsage().rss;
  readonly #timer: NodeJS.Timeout;
  #rss = this.#rssBefore;

  constructor() {
    this.#timer = setInterval(() => {
      this.#rss = Math.max(this.#rss, process.memoryUsage().rss);
    }, 20);
    this.#delay.enable();
  }

  stop(): { readonly heldMs: number; readonly growth: number } {
    clearInterval(this.#timer);
    this.#delay.disable();
    return { heldMs: this.#delay.max / 1e6, growth: this.#rss - this.#rssBefore };
  }
}

describe("readers of a large stored response", () => {
  const state = new StateClient({
    init: {
      folder: null,
      mailboxLimit: 4096,
      responses: limits,
      maxFileContentBytes: 2 ** 30,
      skillsFolder: null,
      shared: null,
    },
    log: createLogger({ level: "silent", format: "text" }),
  });
  before(async () => {
    await state.start();
    const items = Array.from({ length: 1000 }, (_, i) => ({ id: `msg_${i}`, text: "x".repeat(largeBytes / 1000) }));
    await state.responses.add({
      id,
      client: "client",
      previousId: null,
      createdAt: 1,
      model: "m",
      inputStart: null,
      outputStart: null,
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
    it(`do not block the front or fill its memory on the ${edge} edge`, async () => {
      const log = recordingLog();
      const app = createApp({
        inference: new FakeInference(),
        log,
        storedResponses: state.responses,
        config: { accessLog: false },
      });
      const listener: Listener = await listen(app, { host: "127.0.0.1", port: 0, edge, log });
      const url = `http://127.0.0.1:${listener.port}/v1/responses/${id}`;
      const watch = new Watch();
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
      const { heldMs, growth } = watch.stop();
      assert.ok(heldMs < mostDelayMs, `the front was held for ${heldMs} ms`);
      assert.ok(growth < mostGrowth, `${growth} bytes more`);
      listener.forceClose();
      await listener.closed;
    });
  }
});

describe("readers of the events of a running response", () => {
  const count = 100;
  const deltas = 32_000;

  for (const edge of loadableEdges()) {
    it(`do not block the front or fill its memory on the ${edge} edge`, async () => {
      let end: () => void = () => {};
      const ended = new Promise<void>((resolve) => {
        end = resolve;
      });
      const inference = new FakeInference();
      inference.generate = async function* () {
        for (let i = 0; i < deltas; i++) yield [text("word ")];
        await ended;
        yield [finish(), done];
      };
      const log = recordingLog();
      const app = createApp({ inference, log, config: { accessLog: false } });
      const listener: Listener = await listen(app, { host: "127.0.0.1", port: 0, edge, log });
      const url = `http://127.0.0.1:${listener.port}/v1/responses`;
      const body = JSON.stringify({ input: "hi", background: true, stream: true });
      const headers = { "content-type": "application/json" };
      const created = await fetch(url, { method: "POST", body, headers });
      const [, name] = /"id":"(resp_[0-9a-f]+)"/.exec(await firstOf(created)) ?? [];
      await sleep(500);
      const watch = new Watch();
      const reading = lengthsOf(`${url}/${name}?stream=true`, count);
      // By now, the readers have got the stored events and wait for the end of the response.
      await sleep(2000);
      end();
      const lengths = await reading;
      const { heldMs, growth } = watch.stop();
      listener.forceClose();
      await listener.closed;
      assert.ok(
        lengths.length === count && lengths.every((length) => length > 4e6 && length === lengths[0]),
        `${lengths}`,
      );
      assert.ok(heldMs < mostEventDelayMs, `the front was held for ${heldMs} ms`);
      assert.ok(growth < mostEventGrowth, `${growth} bytes more`);
    });
  }
});

/** Returns the first chunk of a response body without reading the rest. */
async function firstOf(response: Response): Promise<string> {
  const reader = response.body!.getReader();
  const { value } = await reader.read();
  await reader.cancel();
  return Buffer.from(value ?? []).toString();
}
