// Documents that a client sends, made with common libraries: the model gets the beginning of their text. Of a harmful
// or unreadable document, the model gets only the name, and the server spends little time and memory on it.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { promisify } from "node:util";
import OpenAI, { toFile } from "openai";
import { type AgentRig, startAgents } from "../agents/rig.ts";
import { pythonEnvironment, pythonFolder } from "./environment.ts";

const readable = ["a.docx", "a.xlsx", "a.pptx", "a.pdf", "a.odt"];
const unreadable = ["spaces.docx", "tags.docx", "bomb.pdf", "locked.pdf", "cut.docx"];

describe("documents in a chat", () => {
  const folder = mkdtempSync(join(tmpdir(), "troupe-documents-"));
  let rig: AgentRig;
  let texts: Readonly<Record<string, readonly string[]>>;

  before(async () => {
    await promisify(execFile)(await pythonEnvironment(), [join(pythonFolder, "../documents.py"), folder]);
    texts = JSON.parse(readFileSync(join(folder, "texts.json"), "utf8"));
    rig = await startAgents();
  });
  after(async () => {
    await rig.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  /** Uploads a file, sends it in a chat, and returns the prompt. */
  async function promptWith(name: string): Promise<string> {
    const client = new OpenAI({ baseURL: `${rig.url}/v1`, apiKey: "none", maxRetries: 0 });
    const file = await toFile(readFileSync(join(folder, name)), name);
    const { id } = await client.files.create({ file, purpose: "user_data" });
    const content = [
      { type: "text" as const, text: "Summarise." },
      { type: "file" as const, file: { file_id: id } },
    ];
    rig.script("done");
    await client.chat.completions.create({ model: "default", messages: [{ role: "user", content }] });
    return rig.seen()[0]![0]!.content;
  }

  for (const name of readable) {
    it(`${name} is read`, async () => {
      const prompt = await promptWith(name);
      const places = texts[name]!.map((text) => prompt.indexOf(text));
      assert.ok(
        places.every((place, i) => place > (places[i - 1] ?? 0)),
        prompt,
      );
    });
  }

  for (const name of unreadable) {
    it(`${name}: only its name is sent`, async () => {
      const startedAt = performance.now();
      const idle = process.memoryUsage().rss;
      const prompt = await promptWith(name);
      assert.match(prompt, /^Summarise\.\n\n\[File "[\w.]+", id file-\w+, application\/[\w.-]+, \d+ bytes\]$/);
      assert.ok(performance.now() - startedAt < 10_000);
      assert.ok(process.memoryUsage().rss - idle < 100e6, "the server reads it in another process");
    });
  }
});
