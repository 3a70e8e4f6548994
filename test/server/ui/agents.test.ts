// Agents in the web UI, in a browser with a real server, agent loop and sandbox and a scripted model: tools, approvals, files, and
// texts that attack the page.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, describe, it } from "node:test";
import type { Browser } from "playwright-core";
import type { ServerTool } from "../../../actors/api/agent/server-tools.ts";
import { commands, runs } from "../agents/clients.ts";
import { type AgentRig, startAgents } from "../agents/rig.ts";
import { assertClean, hasBrowser, launch, openUi, send, settled, until } from "./browser.ts";

describe("tools in the web UI", { skip: !hasBrowser }, () => {
  let rig: AgentRig;
  let browser: Browser;

  before(async () => {
    rig = await startAgents();
    browser = await launch();
  });
  after(async () => {
    await browser.close();
    await rig.stop();
  });

  it("run after an approval, whose code can be edited, and show their output", async () => {
    const ui = await openUi(browser, rig.url);
    const { page } = ui;
    await chooseTools(page, ["Python"]);
    rig.script(runs("print(6 * 7)"), "It is **42**.");
    const answer = await send(page, "What is 6 times 7?");
    const card = page.getByRole("region", { name: "Approval" });
    assert.equal(await card.getByLabel("Input").inputValue(), "print(6 * 7)");
    await card.getByLabel("Input").fill("print(6 * 7 * 10)");
    await card.getByRole("button", { name: "Approve", exact: true }).click();
    await settled(page);
    assert.equal(await answer.locator("strong").innerText(), "42");
    await answer.getByText("Ran Python").click();
    assert.match(await answer.locator(".tool-details").innerText(), /420/);
    assertClean(ui);
    await page.context().close();
  });

  it("are denied with a message that the model reads, and allowed for the session", async () => {
    const ui = await openUi(browser, rig.url);
    const { page } = ui;
    await chooseTools(page, ["Shell"]);
    rig.script(commands("echo one"), "denied", commands("echo two"), commands("echo three"), "done");
    await send(page, "Run something.");
    const card = page.getByRole("region", { name: "Approval" });
    await card.getByLabel("Reason for the model").fill("not today");
    await card.getByRole("button", { name: "Deny" }).click();
    await settled(page);
    assert.match(JSON.stringify(rig.seen().at(-1)), /not today/);
    await send(page, "Run something else.");
    await card.last().getByRole("button", { name: "Approve all of this session" }).click();
    await settled(page);
    assert.match(JSON.stringify(rig.seen().at(-1)), /three/);
    assert.equal(await card.count(), 2, "the third call does not ask");
    await page.context().close();
  });

  it("wait for the decision across a page reload", async () => {
    const ui = await openUi(browser, rig.url);
    const { page } = ui;
    await chooseTools(page, ["Python"]);
    rig.script(runs("print('kept')"), "after");
    await send(page, "Go.");
    await page.getByRole("region", { name: "Approval" }).waitFor();
    await page.reload();
    await page.getByRole("button", { name: "Approve", exact: true }).click();
    await settled(page);
    assert.match(await page.locator("article.assistant").innerText(), /after/);
    await page.context().close();
  });

  it("show that each of several calls of one tool runs", async () => {
    const ui = await openUi(browser, rig.url);
    const { page } = ui;
    await chooseTools(page, ["Shell"], false);
    rig.script({ calls: [2, 4].map((seconds) => ["service_shell", { commands: [`sleep ${seconds}`] }]) }, "done");
    const answer = await send(page, "Wait.");
    const pending = answer.locator(".tool.pending");
    for (const count of [2, 1, 0]) await until(async () => (await pending.count()) === count);
    await settled(page);
    assertClean(ui);
    await page.context().close();
  });

  it("get attached files, and return files with a preview", async () => {
    const ui = await openUi(browser, rig.url);
    const { page } = ui;
    await chooseTools(page, ["Shell", "Python"], false);
    rig.script(
      commands("cat numbers.txt | tr a-z A-Z > result.txt"),
      {
        calls: [["service_surface_outputs", { outputs: [{ path: "result.txt", name: "result.txt" }] }]],
      },
      "here it is",
    );
    await page.locator('input[type="file"][multiple]').setInputFiles({
      name: "numbers.txt",
      mimeType: "text/plain",
      buffer: Buffer.from("one two three"),
    });
    await page.locator(".composer .files").getByText("numbers.txt").waitFor();
    const answer = await send(page, "Make it loud.");
    await settled(page);
    const file = answer.getByRole("region", { name: "result.txt" }).first();
    await file.getByRole("button", { name: "Preview" }).click();
    assert.match(await file.locator("pre").innerText(), /ONE TWO THREE/);
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      file.getByRole("button", { name: "Download" }).click(),
    ]);
    assert.equal(download.suggestedFilename(), "result.txt");
    assertClean(ui);
    await page.context().close();
  });
});

describe("hostile texts in the web UI", { skip: !hasBrowser }, () => {
  let rig: AgentRig;
  let browser: Browser;
  /** Foreign server: nothing displayed on the page may send it a request. */
  const stranger = createServer((request, response) => {
    reached.push(request.url ?? "");
    response.end();
  });
  const reached: string[] = [];
  let address = "";

  before(async () => {
    rig = await startAgents();
    browser = await launch();
    await new Promise<void>((resolve) => stranger.listen(0, "127.0.0.1", resolve));
    address = `http://127.0.0.1:${(stranger.address() as AddressInfo).port}`;
  });
  after(async () => {
    await browser.close();
    await rig.stop();
    stranger.close();
  });

  it("run no script, send no request, and cannot look like the page", async () => {
    const texts = attacks(address);
    const ui = await openUi(browser, rig.url);
    const { page } = ui;
    await page.evaluate("window.attacked = []");
    rig.script(...texts);
    for (const text of texts) {
      await send(page, text);
      await settled(page);
    }
    // Wait until lazily loaded content, such as diagrams, is rendered.
    await page.waitForTimeout(1500);
    assert.deepEqual(await page.evaluate("window.attacked"), []);
    assert.deepEqual([reached, ui.foreign], [[], []]);
    assert.equal(
      await page.locator(".thread iframe, .thread form, .thread object, .thread embed, .thread script").count(),
      0,
    );
    assert.equal(await page.locator(".thread .markdown :is([class~=button], [style*=position], dialog)").count(), 0);
    const links = await page
      .locator(".thread a[href]")
      .evaluateAll((all) => all.map((link) => link.getAttribute("href") ?? ""));
    assert.ok(links.length > 0);
    for (const href of links) assert.match(href, /^(?:https?:|mailto:|#)/);
    await page.reload();
    await page.locator("article.assistant").first().waitFor();
    await page.waitForTimeout(800);
    assert.deepEqual([reached, ui.foreign], [[], []]);
    await page.context().close();
  });

  it("do not stop the page when they are long or deeply nested", async () => {
    const ui = await openUi(browser, rig.url);
    const { page } = ui;
    const texts = [`${"> ".repeat(3000)}deep`, "[".repeat(20_000), "*a ".repeat(20_000), `${"x".repeat(1_500_000)}`];
    rig.script(...texts);
    for (const [i] of texts.entries()) {
      await send(page, `text ${i}`);
      await settled(page);
    }
    await until(async () => (await page.locator("article.assistant").count()) === texts.length);
    await page.context().close();
  });
});

describe("MCP servers in the web UI", { skip: !hasBrowser }, () => {
  it("can be chosen individually", async () => {
    const tool = (name: string, server: string): ServerTool => ({
      spec: { name, description: "", parameters: { type: "object" }, strict: false },
      about: { source: "mcp", kind: "external", label: name },
      server,
      run: async () => ({ status: "success", content: "The Tempest", images: [] }),
    });
    const tools = [tool("lookup", "library"), tool("borrow", "library"), tool("forecast", "weather")];
    const settings = { groups: [], registersServerTools: false };
    const rig = await startAgents({ sources: [{ tools: () => tools }], settings });
    const browser = await launch();
    const ui = await openUi(browser, rig.url);
    const { page } = ui;
    await page.getByRole("button", { name: "Tools" }).click();
    assert.equal(await page.getByRole("dialog").getByLabel("Python").count(), 0, "the server does not offer it");
    await page.getByLabel(/MCP server library \(2 tools\)/).check();
    await page.getByRole("dialog").getByText("lookup, borrow").waitFor();
    await page.getByRole("dialog").getByRole("button", { name: "Close" }).click();
    rig.script({ calls: [["lookup", '{"title":"tempest"}']] }, "It is here.");
    const answer = await send(page, "Is it here?");
    await page.getByRole("region", { name: "Approval" }).getByRole("button", { name: "Approve", exact: true }).click();
    await settled(page);
    assert.match(await answer.innerText(), /It is here\./);
    const offered = rig.inference.lastRun.request.tools?.specs.map(({ name }) => name);
    assert.deepEqual(offered, ["lookup", "borrow"]);
    assertClean(ui);
    await browser.close();
    await rig.stop();
  });
});

type Page = Awaited<ReturnType<typeof openUi>>["page"];

async function chooseTools(page: Page, names: readonly string[], asks = true): Promise<void> {
  await page.getByRole("button", { name: "Tools" }).click();
  for (const name of names) await page.getByLabel(name, { exact: true }).check();
  if (!asks) await page.getByLabel("Ask before each call").uncheck();
  await page.getByRole("dialog").getByRole("button", { name: "Close" }).click();
}

/** Returns texts, each of which would run a script or send a request to `address` in a page without protection. */
function attacks(address: string): readonly string[] {
  const run = "window.attacked.push(1)";
  return [
    `<script>${run}</script><img src=x onerror="${run}"><svg onload="${run}"></svg>`,
    `<a href="javascript:${run}">a</a> [b](javascript:${run}) [c](data:text/html,<script>${run}</script>) [d](${address}/link)`,
    `![pixel](${address}/pixel.png) <img src="${address}/image"> <img srcset="${address}/set 1x">`,
    `<iframe src="${address}/frame" srcdoc="<script>parent.attacked.push(2)</script>"></iframe>`,
    "<dialog open>The server needs your key</dialog>",
    `<form action="${address}/form"><button class="button main">Approve</button></form><input autofocus onfocus="${run}">`,
    `<style>@import "${address}/style.css"; body { display: none }</style><link rel=stylesheet href="${address}/link.css">`,
    `<div style="position:fixed;inset:0;background:url(${address}/background)">cover</div>`,
    `<video src="${address}/video" autoplay></video><audio src="${address}/audio"></audio><object data="${address}/o"></object>`,
    `<math><mtext><table><mglyph><style><img src=x onerror="${run}"></style></mglyph></table></mtext></math>`,
    `<svg><foreignObject><img src="${address}/svg"></foreignObject><image href="${address}/svg-image"/><script>${run}</script></svg>`,
    `<base href="${address}/"><meta http-equiv="refresh" content="0;url=${address}/refresh">`,
    `\`\`\`mermaid\ngraph TD; A["<img src=x onerror='${run}'>"] --> B; click A "javascript:${run}"\n\`\`\``,
    `\`\`\`mermaid\n%%{init: {"securityLevel": "loose", "themeCSS": "@import url(${address}/mermaid.css)"}}%%\ngraph TD; A-->B\n\`\`\``,
    `$\\href{javascript:${run}}{x}$ $$\\includegraphics{${address}/tex}$$ $\\htmlStyle{background:url(${address}/tex2)}{x}$`,
    `\`\`\`html\n<script>${run}</script><img src=x onerror="${run}">\n\`\`\``,
    `<a id="app" name="attacked" href="#">clobber</a><form id="getElementById"></form> <p class="notice error">fake</p>`,
    `[x]: ${address}/definition "title"\n\n![x]\n\n<details open ontoggle="${run}"><summary>s</summary></details>`,
    `<portal src="${address}/portal"></portal><embed src="${address}/embed"><applet archive="${address}/applet"></applet>`,
  ];
}
