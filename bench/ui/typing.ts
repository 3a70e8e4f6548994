// Typing: a user types in the web UI while four answers of 200 tokens per second grow in a conversation of 10,000
// messages. The model is scripted; the server, the page and the browser are real.
import type { Browser } from "playwright-core";
import { begin, done, finish, type Step, text } from "../../test/fixtures/fakes/fake-inference.ts";
import { startServer } from "../../test/fixtures/http-server.ts";
import { openUi, send, settled } from "../../test/server/ui/browser.ts";
import { percentiles } from "../serving/client/statistics.ts";

const messageCount = 10_000;
const streams = 4;
const tokensPerSecond = 200;
const seconds = 8;
const keyPresses = 40;
const pauseMs = 100;

export interface Typing {
  /** Durations of the page's tasks that take more than 50 ms, in ms. */
  readonly longTasks: readonly number[];
  /** 90th percentile of the time until a key press is handled, in ms. */
  readonly keyPressMs: number;
  /** Growth of the page's heap in bytes, after garbage collection. */
  readonly heapBytes: number;
}

/** Yields the events of an answer: words in paragraphs, with lists and code. */
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

export async function measureTyping(browser: Browser): Promise<Typing> {
  const server = await startServer("node", { script: story });
  const { page } = await openUi(browser, server.url);
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
  const delays: number[] = [];
  for (let i = 0; i < keyPresses; i++) {
    const startMs = performance.now();
    await page.getByLabel("Message", { exact: true }).press("x");
    delays.push(performance.now() - startMs);
    await page.waitForTimeout(pauseMs);
  }
  await page.getByLabel("Message", { exact: true }).fill("");
  await settled(page);
  const longTasks = (await page.evaluate("tasks")) as readonly number[];
  const heapBytes = (await heap()) - before;
  await page.context().close();
  await server.stop();
  return { longTasks, keyPressMs: percentiles(delays).p90, heapBytes };
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
