// Browser for tests of the web UI: Debian's Chromium, driven by Playwright. Each page records its errors and its
// requests to other servers.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { type Browser, chromium, type Page } from "playwright-core";

const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
export const hasBrowser = existsSync(executablePath);
const timeoutMs = 20_000;

if (process.env.CI && !hasBrowser) throw new Error(`expected chromium at ${executablePath}; install Debian's package`);

/** Flags with which Chromium computes WebGPU in software. */
export const softwareGpu = ["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--enable-features=Vulkan"];

export async function launch(flags: readonly string[] = []): Promise<Browser> {
  return await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage", ...flags] });
}

export interface WatchedPage {
  readonly page: Page;
  /** URLs of requests to other servers. */
  readonly foreign: readonly string[];
  /** Errors of the page's scripts, and violations of its content security policy. */
  readonly errors: readonly string[];
}

/** Opens the UI in a new browser profile with its own storage. */
export async function openUi(
  browser: Browser,
  url: string,
  viewport = { width: 1280, height: 800 },
): Promise<WatchedPage> {
  const context = await browser.newContext({ viewport, locale: "en-US", reducedMotion: "reduce" });
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  return await openTab(context, url);
}

/** Opens the UI in a tab that shares its storage with the other tabs of the context. */
export async function openTab(context: Awaited<ReturnType<Browser["newContext"]>>, url: string): Promise<WatchedPage> {
  const page = await context.newPage();
  page.setDefaultTimeout(timeoutMs);
  const foreign: string[] = [];
  const errors: string[] = [];
  page.on("request", (request) => {
    const address = request.url();
    if (!address.startsWith(url) && !/^(?:data|blob):/.test(address)) foreign.push(address);
  });
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("console", (message) => {
    if (/Content Security Policy/.test(message.text())) errors.push(message.text());
  });
  await page.goto(`${url}/ui/`);
  return { page, foreign, errors };
}

/** Sets the temperature of new conversations so that responses are deterministic. */
export async function makeGreedy(page: Page): Promise<void> {
  await page.evaluate(`localStorage.setItem("troupe.settings", '{"temperature":0}')`);
  await page.reload();
}

/** Sends a message. Returns the page element of the response, which may still grow. */
export async function send(page: Page, text: string) {
  const before = await page.locator("article.assistant").count();
  await page.getByLabel("Message", { exact: true }).fill(text);
  await page.getByRole("button", { name: "Send" }).click();
  const answer = page.locator("article.assistant").nth(before);
  await answer.waitFor();
  return answer;
}

/** Waits until no response is being generated. */
export async function settled(page: Page): Promise<void> {
  await page.getByRole("button", { name: "Send" }).waitFor();
}

export async function until(holds: () => Promise<boolean>): Promise<void> {
  const deadline = performance.now() + timeoutMs;
  while (!(await holds())) {
    assert.ok(performance.now() < deadline, `expected within ${timeoutMs} ms: ${holds}`);
    await new Promise((resolve) => setTimeout(resolve, 30));
  }
}

export function assertClean({ foreign, errors }: WatchedPage): void {
  assert.deepEqual([foreign, errors], [[], []]);
}

/** Throws if axe finds a serious accessibility violation. `what`: name of the page in the error message. */
export async function assertAccessible(page: Page, what: string): Promise<void> {
  await page.evaluate(readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8"));
  const { violations } = (await page.evaluate("axe.run(document, { resultTypes: ['violations'] })")) as {
    readonly violations: readonly {
      readonly id: string;
      readonly impact: string;
      readonly nodes: readonly { readonly html: string }[];
    }[];
  };
  const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  assert.deepEqual(
    serious.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)]),
    [],
    what,
  );
}
