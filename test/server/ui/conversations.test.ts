// Conversations in the web UI, in a browser with the real server and the default model.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import type { Browser } from "playwright-core";
import { realModel } from "../../fixtures/models/models.ts";
import { type RunningServer, startServer } from "../../fixtures/serve.ts";
import { assertClean, hasBrowser, launch, makeGreedy, openTab, openUi, send, settled, until } from "./browser.ts";
import { CuttableProxy } from "./proxy.ts";

describe("conversations in the web UI", { skip: !hasBrowser }, () => {
  let server: RunningServer;
  let browser: Browser;

  before(async () => {
    const { path } = await realModel();
    server = await startServer([
      "-m",
      path,
      "--max-seqs",
      "4",
      "--default-max-tokens",
      "48",
      "--max-model-len",
      "2048",
    ]);
    browser = await launch();
  });
  after(async () => {
    await browser.close();
    await server.stop();
  });

  it("stream, survive a page reload, and have a title", async () => {
    const ui = await openUi(browser, server.url);
    const { page } = ui;
    const answer = await send(page, "Write about the sea.");
    const early = await answer.locator(".markdown").innerText({ timeout: 20_000 });
    await settled(page);
    const text = await answer.locator(".markdown").innerText();
    assert.ok(text.length > early.length, "the answer grows");
    assert.match(await answer.innerText(), /tokens\/s · first token after/);
    await page.reload();
    await page.locator("article.assistant .markdown").waitFor();
    assert.equal(await page.locator("article.assistant .markdown").innerText(), text);
    assert.equal(await page.locator(".conversations .title").innerText(), "Write about the sea.");
    assertClean(ui);
    await page.context().close();
  });

  it("can be stopped and continued", async () => {
    const ui = await openUi(browser, server.url);
    const { page } = ui;
    // Greedy sampling gives a long response.
    await makeGreedy(page);
    await setMaxTokens(page, "400");
    const answer = await send(page, "Write a long story about a ship.");
    await answer.locator(".markdown").waitFor();
    await page.getByRole("button", { name: "Stop" }).click();
    await settled(page);
    assert.match(await answer.innerText(), /Stopped/);
    const text = await answer.locator(".markdown").innerText();
    await setMaxTokens(page, "16");
    await answer.getByRole("button", { name: "Continue" }).click();
    await until(async () => (await answer.locator(".markdown").innerText()).length > text.length);
    await settled(page);
    assert.ok((await answer.locator(".markdown").innerText()).startsWith(text.trim().slice(0, 20)));
    assertClean(ui);
    await page.context().close();
  });

  it("have branches: edited questions, regenerated and edited answers", async () => {
    const ui = await openUi(browser, server.url);
    const { page } = ui;
    await send(page, "Name a colour.");
    await settled(page);
    const question = page.locator("article.user");
    await question.getByRole("button", { name: "Edit" }).click();
    await page.getByLabel("Edit the message").fill("Name an animal.");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("2 of 2").first().waitFor();
    await settled(page);
    assert.match(await question.innerText(), /Name an animal/);
    await question.getByRole("button", { name: "Previous branch" }).click();
    await page.getByText("Name a colour.").last().waitFor();

    const answer = page.locator("article.assistant");
    await answer.getByRole("button", { name: "Regenerate" }).click();
    await answer.getByText("2 of 2").waitFor();
    await settled(page);
    await answer.getByRole("button", { name: "Edit" }).click();
    await page.getByLabel("Edit the message").fill("**Mauve**, I say.");
    await page.getByRole("button", { name: "Save" }).click();
    await answer.getByText("3 of 3").waitFor();
    assert.equal(await answer.locator("strong").innerText(), "Mauve");
    await page.reload();
    await answer.getByText("3 of 3").waitFor();
    assert.equal(await answer.locator("strong").innerText(), "Mauve");
    assertClean(ui);
    await page.context().close();
  });

  it("can have several models side by side", async () => {
    const ui = await openUi(browser, server.url);
    const { page } = ui;
    await page.getByRole("button", { name: "Add a model beside" }).click();
    await send(page, "Say hello.");
    await settled(page);
    const answers = page.locator(".side-by-side article.assistant");
    assert.equal(await answers.count(), 2);
    for (const text of await answers.locator(".markdown").allInnerTexts()) assert.notEqual(text.trim(), "");
    await answers.nth(1).getByRole("button", { name: "Go on with this answer" }).click();
    await answers.nth(0).getByRole("button", { name: "Go on with this answer" }).waitFor();
    assertClean(ui);
    await page.context().close();
  });

  it("continue after a reload during a response, with nothing lost or duplicated", async () => {
    const ui = await openUi(browser, server.url);
    const { page } = ui;
    await setMaxTokens(page, "200");
    await setSeed(page);
    const answer = await send(page, "Write a long story about a ship.");
    await answer.locator(".markdown").waitFor();
    await page.waitForTimeout(700);
    await page.reload();
    await page.getByRole("button", { name: "Stop" }).waitFor();
    await settled(page);
    const resumed = await page.locator("article.assistant .markdown").innerText();
    // The same seed gives the same response.
    await page.locator("article.assistant").getByRole("button", { name: "Regenerate" }).click();
    await page.locator("article.assistant").getByText("2 of 2").waitFor();
    await settled(page);
    assert.equal(await page.locator("article.assistant .markdown").innerText(), resumed);
    await page.context().close();
  });

  it("are the same in two tabs, and an answer goes on in one when the other is closed", async () => {
    const ui = await openUi(browser, server.url);
    const { page } = ui;
    await setMaxTokens(page, "200");
    await setSeed(page);
    await send(page, "Write a long story about a bear.");
    const other = await openTab(page.context(), server.url);
    await other.page.locator(".conversations .title").first().click();
    await other.page.locator("article.assistant .markdown").waitFor();
    const begun = await other.page.locator("article.assistant .markdown").innerText();
    await page.close();
    await settled(other.page);
    const whole = await other.page.locator("article.assistant .markdown").innerText();
    assert.ok(whole.length > begun.length);
    assert.match(await other.page.locator("article.assistant").innerText(), /200 tokens/);
    await other.page.context().close();
  });

  it("survive a broken connection, and say when the server cannot be reached", async (t) => {
    const proxy = await CuttableProxy.start(Number(new URL(server.url).port));
    t.after(() => proxy.stop());
    const ui = await openUi(browser, proxy.url);
    const { page } = ui;
    await setMaxTokens(page, "200");
    await setSeed(page);
    const answer = await send(page, "Write a long story about a fox.");
    await answer.locator(".markdown").waitFor();
    proxy.cut();
    await page.getByText("The server cannot be reached").waitFor();
    assert.ok(await page.getByRole("button", { name: "Stop" }).isVisible(), "the answer is not given up");
    proxy.mend();
    await answer.getByText("200 tokens").waitFor();
    await page.getByText("The server cannot be reached").waitFor({ state: "detached" });
    await page.context().close();
  });

  it("show the probability of each token and its alternatives", async () => {
    const ui = await openUi(browser, server.url);
    const { page } = ui;
    await page.getByRole("button", { name: "Settings" }).click();
    await page.getByLabel("Collect logprobs").check();
    await page.getByRole("button", { name: "Close", exact: true }).click();
    const answer = await send(page, "Say hello.");
    await settled(page);
    await answer.getByRole("button", { name: "Show logprobs" }).click();
    await answer.locator(".token").first().click();
    assert.equal(await answer.locator(".logprobs tr").count(), 5);
    assert.equal((await answer.locator(".logprobs tr.chosen").count()) <= 1, true);
    await page.context().close();
  });

  it("have settings that can be typed key by key", async () => {
    const ui = await openUi(browser, server.url);
    const { page } = ui;
    await page.getByRole("button", { name: "Settings" }).click();
    const chance = page.getByLabel("min_p");
    await chance.pressSequentially("0.05");
    await chance.blur();
    assert.equal(await chance.inputValue(), "0.05");
    await page.getByRole("button", { name: "Add a property" }).click();
    await page.getByLabel("Name of the property").fill("a");
    await page.getByRole("button", { name: "Add a property" }).click();
    const second = page.getByLabel("Name of the property").nth(1);
    await second.fill("");
    await second.pressSequentially("ab");
    assert.equal(await second.inputValue(), "ab");
    await page.getByRole("button", { name: "As text" }).click();
    const schema = page.getByRole("textbox", { name: "JSON schema of the answer" });
    await schema.fill("");
    await schema.pressSequentially('{"type":');
    await schema.blur();
    await page.locator(".schema .problem").waitFor();
    assert.equal(await schema.inputValue(), '{"type":');
    await schema.press("End");
    await schema.pressSequentially('"object"}');
    await schema.blur();
    await until(async () => (await page.locator(".schema .problem").count()) === 0);
    assert.equal(await schema.inputValue(), '{"type":"object"}');
    assertClean(ui);
    await page.context().close();
  });

  it("are the same in two tabs: an answer is stopped, and messages are deleted, in either", async () => {
    const ui = await openUi(browser, server.url);
    const { page } = ui;
    await makeGreedy(page);
    await send(page, "Name a colour.");
    await settled(page);
    await setMaxTokens(page, "1500");
    const answer = await send(page, "Write a long story about a whale.");
    await answer.locator(".markdown").waitFor();
    const other = await openTab(page.context(), server.url);
    await other.page.locator(".conversations .title").first().click();
    await other.page.locator("article.assistant").nth(1).waitFor();
    await other.page.getByRole("button", { name: "Stop" }).click();
    await answer.getByText("Stopped").waitFor();
    await settled(other.page);
    const question = other.page.locator("article.user").nth(1);
    await question.getByRole("button", { name: "Delete" }).click();
    await question.getByRole("button", { name: "Really delete?" }).click();
    await until(async () => (await page.locator("article").count()) === 2);
    assert.match(await page.locator("article.user").innerText(), /Name a colour/);
    assertClean(ui);
    assertClean(other);
    await page.context().close();
  });

  it("are not imported from a file with incomplete messages, or with a message below itself", async () => {
    const ui = await openUi(browser, server.url);
    const { page } = ui;
    const conversation = { id: "c", title: "t", folder: "", createdAt: 1, updatedAt: 1, leaf: "m", settings: {} };
    const message = { id: "m", conversation: "c", parent: null, createdAt: 1, role: "user" };
    const whole = { ...message, text: "hi", files: [] };
    const cycle = [
      { ...whole, parent: "n" },
      { ...whole, id: "n", parent: "m" },
    ];
    for (const messages of [[message], [{ ...whole, parent: "m" }], cycle, [whole, whole]]) {
      const text = JSON.stringify({ format: "troupe.conversations.1", conversations: [{ conversation, messages }] });
      const file = { name: "a.json", mimeType: "application/json", buffer: Buffer.from(text) };
      await page.locator(".side-bar-foot input[type=file]").setInputFiles(file);
      const notice = page.getByText("expected an export of conversations of troupe");
      await notice.waitFor();
      assert.equal(await page.locator(".conversations li").count(), 0);
      await page.reload();
    }
    assertClean(ui);
    await page.context().close();
  });

  it("have responses that match a JSON schema built in a form", async () => {
    const ui = await openUi(browser, server.url);
    const { page } = ui;
    await page.getByRole("button", { name: "Settings" }).click();
    await page.getByRole("button", { name: "Add a property" }).click();
    await page.getByLabel("Name of the property").fill("colour");
    await page.getByLabel("Type of the property").selectOption("boolean");
    const answer = await send(page, "Is the sky blue?");
    await settled(page);
    assert.deepEqual(Object.keys(JSON.parse(await answer.locator(".markdown").innerText())), ["colour"]);
    await page.context().close();
  });

  it("can be searched by words, put in folders, exported, deleted and imported", async () => {
    const ui = await openUi(browser, server.url);
    const { page } = ui;
    await send(page, "Tell me about zebras.");
    await settled(page);
    await page.getByLabel("Search").fill("ZEBRAS about");
    await page.locator(".conversations li").getByText("Tell me about zebras.").first().waitFor();
    await page.getByLabel("Search").fill("");
    await page.getByRole("button", { name: "Conversation", exact: true }).click();
    await page.getByLabel("Folder").fill("Zoo");
    await page.getByLabel("Folder").blur();
    await page.locator(".conversations h3").getByText("Zoo").waitFor();
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("button", { name: "Export as JSON" }).click(),
    ]);
    const file = await download.path();
    await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
    await page.getByRole("button", { name: "Really delete?" }).click();
    await page.locator(".conversations .title").waitFor({ state: "detached" });
    await page.locator('input[accept*="json"]').setInputFiles(file);
    await page.locator(".conversations h3").getByText("Zoo").waitFor();
    await page.locator(".conversations .title").click();
    await page.getByText("Tell me about zebras.").last().waitFor();
    assertClean(ui);
    await page.context().close();
  });
});

async function setMaxTokens(page: Awaited<ReturnType<typeof openUi>>["page"], count: string): Promise<void> {
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByLabel("Maximum tokens").fill(count);
  await page.getByLabel("Maximum tokens").blur();
  await page.getByRole("button", { name: "Settings" }).click();
}

async function setSeed(page: Awaited<ReturnType<typeof openUi>>["page"]): Promise<void> {
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByLabel("Seed").fill("7");
  await page.getByLabel("Seed").blur();
  await page.getByRole("button", { name: "Settings" }).click();
}
