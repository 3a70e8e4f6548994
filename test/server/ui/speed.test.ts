// Speed of the web UI, measured as by `bench ui`. The limits are loose, because other programs use the machine too.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import type { Browser } from "playwright-core";
import { measureTyping } from "../../../bench/ui/typing.ts";
import { measureVisitors } from "../../../bench/ui/visitors.ts";
import { realModel } from "../../fixtures/models/models.ts";
import { hasBrowser, launch } from "./browser.ts";

const longestTaskMs = 250;
const mostDelayMs = 25;
/** Maximum growth of the page's heap in bytes: several times the size of the response texts. */
const flatBytes = 12e6;

describe("the speed of the web UI", { skip: !hasBrowser }, () => {
  let browser: Browser;
  before(async () => {
    browser = await launch();
  });
  after(async () => {
    await browser.close();
  });

  it("keeps the page responsive while four responses grow in a conversation of 10,000 messages", async (t) => {
    const { longTasks, keyPressMs, heapBytes } = await measureTyping(browser);
    const longest = Math.max(0, ...longTasks);
    t.diagnostic(
      `longest task ${longest.toFixed(0)} ms; key press p90 ${keyPressMs.toFixed(0)} ms; heap +${heapBytes} bytes`,
    );
    assert.ok(longest <= longestTaskMs, `longest task: ${longest} ms`);
    assert.ok(heapBytes < flatBytes, `${heapBytes} bytes`);
  });

  it("does not block the server while 100 visitors load the page", async (t) => {
    const { path } = await realModel();
    const { p99 } = await measureVisitors(path);
    t.diagnostic(`event loop delay of the server: p99 ${p99.toFixed(1)} ms`);
    assert.ok(p99 <= mostDelayMs, `${p99} ms`);
  });
});
