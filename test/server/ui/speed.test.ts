// Speed of the web UI: four answers at 200 tokens a second in a conversation of 10,000 messages, and 100 visitors who load the page.
import assert from "node:assert/strict";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { after, before, describe, it } from "node:test";
import type { Browser } from "playwright-core";
import { begin, done, finish, type Step, text } from "../../fixtures/fakes/fake-inference.ts";
import { startServer, type TestServer } from "../../fixtures/http-server.ts";
import { hasBrowser, launch, openUi, send, settled } from "./browser.ts";

const messageCount = 10_000;
const streams = 4;
const tokensPerSecond = 200;
const seconds = 8;
const longestTaskMs = 50;
/** Factor by which a task may be longer here, because other programs use the machine too. */
const slack = 5;
/** Growth of the page's heap that counts as flat: the texts of the answers, several times. */
const flatBytes = 12e6;

/** An answer of words in paragraphs, with lists and code. */
function* story(): Iterable<Step> {
  yield [begin()];
  for (let i = 0; i < tokensPerSecond * seconds; i++) {
    const word =
      i % 90 === 0
        ? "\n\n"
        : i % 90 === 60
          ? "\n\n- **item** "
          : i % 90 === 75
            ? "\n\n```js\nlet x = 1;\n```\n\n"
            : "word ";
    yield [text(word)];
    yield { waitMs: 1000 / tokensPerSecond };
  }
  yield [finish(), done];
}

describe("the speed of the web UI", { skip: !hasBrowser }, () => {
  let server: TestServer;
  let browser: Browser;
  before(async () => {
    server = await startServer("node", { script: story });
    browser = await launch();
  });
  after(async () => {
    await browser.close();
    await server.stop();
  });

  it("leaves the page free while four answers grow in a conversation of 10,000 messages", async (t) => {
    const ui = await openUi(browser, server.url);
    const { page } = ui;
    const file = { name: "long.json", mimeType: "application/json", buffer: Buffer.from(longConversation()) };
    await page.locator('input[accept*="json"]').setInputFiles(file);
    await page.locator(".conversations .title").click();
    await page.getByText("answer 4999", { exact: false }).waitFor();
    for (let i = 1; i < streams; i++) await page.getByRole("button", { name: "Add a model beside" }).click();
    const session = await page.context().newCDPSession(page);
    const heap = async (): Promise<number> => {
      await session.send("HeapProfiler.collectGarbage");
      return ((await session.send("Runtime.getHeapUsage")) as { usedSize: number }).usedSize;
    };
    await send(page, "warm up");
    await settled(page);
    const before = await heap();
    await page.evaluate(
      "window.tasks = []; new PerformanceObserver((list) => tasks.push(...list.getEntries().map((e) => e.duration))).observe({ type: 'longtask' })",
    );
    await send(page, "go");
    // The reader types while the answers grow.
    const delays: number[] = [];
    for (let i = 0; i < 40; i++) {
      const startMs = performance.now();
      await page.getByLabel("Message", { exact: true }).press("x");
      delays.push(performance.now() - startMs);
      await page.waitForTimeout(100);
    }
    await page.getByLabel("Message", { exact: true }).fill("");
    await settled(page);
    const tasks = (await page.evaluate("tasks")) as readonly number[];
    const growth = (await heap()) - before;
    const longest = Math.max(0, ...tasks);
    t.diagnostic(
      `long tasks ${tasks.length}, longest ${longest.toFixed(0)} ms; key press p95 ${percentile(delays, 0.95).toFixed(0)} ms; heap grew by ${(growth / 1e6).toFixed(1)} MB`,
    );
    assert.ok(longest <= longestTaskMs * slack, `longest task: ${longest} ms`);
    assert.ok(growth < flatBytes, `${growth} bytes`);
    await page.context().close();
  });

  it("does not hold up the server while 100 visitors load the page", async (t) => {
    const page = await (await fetch(`${server.url}/ui/`)).text();
    const names = [...page.matchAll(/(?:src|href)="\.\/([^"]+)"/g)].map(([, name]) => name as string);
    const delay = monitorEventLoopDelay({ resolution: 1 });
    delay.enable();
    const visit = async (): Promise<void> => {
      for (const name of ["", ...names]) await (await fetch(`${server.url}/ui/${name}`)).arrayBuffer();
    };
    await Promise.all(Array.from({ length: 100 }, visit));
    delay.disable();
    // The visitors run on the same event loop, so this is more than the server's share.
    t.diagnostic(`event loop delay with the visitors' own work: p99 ${(delay.percentile(99) / 1e6).toFixed(1)} ms`);
  });
});

function percentile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((one, other) => one - other);
  return sorted[Math.floor(share * (sorted.length - 1))] ?? 0;
}

function longConversation(): string {
  const now = Date.now() - 1e9;
  const messages = Array.from({ length: messageCount }, (_, i) => {
    const head = { id: `m${i}`, conversation: "c", parent: i === 0 ? null : `m${i - 1}`, createdAt: now + i };
    const number = Math.floor(i / 2);
    if (i % 2 === 0) return { ...head, role: "user", text: `question ${number}`, files: [] };
    const content = [
      { type: "output_text", text: `answer ${number}\n\n- one\n- two **three**\n\nA paragraph with \`code\`.` },
    ];
    return {
      ...{ ...head, role: "assistant", model: "tiny", status: "completed", problem: "", activity: [], base: null },
      ...{ output: [{ type: "message", content }], responseId: "r", sequence: 1, session: "", usage: null },
      ...{ firstMs: 1, lastMs: 2, reasoningMs: null, isEdited: false },
    };
  });
  const conversation = {
    ...{ id: "c", title: "long", folder: "", createdAt: now, updatedAt: now, leaf: `m${messageCount - 1}` },
    settings: {},
  };
  return JSON.stringify({ format: "troupe.conversations.1", conversations: [{ conversation, messages }] });
}
