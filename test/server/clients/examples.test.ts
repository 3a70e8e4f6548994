// Example programs in examples/, run as a user would, against the real command with the real default model.
// test/server/python runs those in Python.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { realModel } from "../../fixtures/models/models.ts";
import { type RunningServer, startServer } from "../../fixtures/serve.ts";

const key = "key-of-the-examples";
const runLimitMs = 120_000;
const sources = fileURLToPath(new URL("../../../../examples/", import.meta.url));
const compiled = fileURLToPath(new URL("../../../examples/", import.meta.url));

describe("examples", () => {
  const running: { server?: RunningServer } = {};
  const folder = mkdtempSync(join(tmpdir(), "troupe-test-examples-"));

  before(async () => {
    writeFileSync(join(folder, "notes.txt"), "The ship leaves on Monday.\n");
    const { path, isReal } = await realModel();
    assert.ok(isReal, "the examples are to be answered by the default model, which cannot be fetched here");
    const limits = ["--max-model-len", "4096", "--max-seqs", "2", "--default-max-tokens", "64"];
    running.server = await startServer(["-m", path, "--api-key", key, ...limits]);
  });
  after(async () => {
    await running.server?.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  /** Runs a program to its end and returns its output. */
  function run(program: string, args: readonly string[]): Promise<string> {
    assert.ok(running.server, "the server has not been started");
    const env = { PATH: process.env.PATH, TROUPE_URL: running.server.url, TROUPE_KEY: key };
    return new Promise((resolve, reject) => {
      execFile(program, args, { env, timeout: runLimitMs }, (error, stdout, stderr) =>
        error === null ? resolve(stdout) : reject(new Error(`${error.message}\n${stdout}\n${stderr}`)),
      );
    });
  }

  it("curl: eight calls, all answered", async () => {
    const printed = await run("bash", [join(sources, "curl.sh")]);
    const answers = printed.split(/^== .*\n/m).slice(1);
    assert.equal(answers.length, 8);
    const [models, chat, stream, json, tool, response, message, embeddings] = answers as [string, ...string[]] &
      string[];
    assert.equal(JSON.parse(models).object, "list");
    assert.ok(JSON.parse(chat as string).choices[0].message.content);
    assert.match(stream as string, /"usage":\{[\s\S]*data: \[DONE\]/);
    assert.match(JSON.parse(JSON.parse(json as string).choices[0].message.content).state, /^(calm|rough)$/);
    const [call] = JSON.parse(tool as string).choices[0].message.tool_calls;
    assert.match(JSON.parse(call.function.arguments).city, /^(Rome|Paris)$/);
    assert.equal(JSON.parse(response as string).object, "response");
    assert.equal(JSON.parse(message as string).type, "message");
    assert.match(embeddings as string, /"embedding":\[-?\d/);
  });

  it("chat.ts prints an answer and its tokens", async () => {
    assert.match(
      await run(process.execPath, [join(compiled, "typescript/chat.js")]),
      /\S+[\s\S]*\(\d+ \+ \d+ tokens\)/,
    );
  });

  it("tools.ts calls the tool and returns its result to the model", async () => {
    const printed = await run(process.execPath, [join(compiled, "typescript/tools.js")]);
    assert.match(printed, /^get_weather\((Paris|Rome|Oslo)\) -> \1: sunny, 21 degrees\n[\s\S]+/);
  });

  it("agent.ts calls its tools in the folder and answers", async () => {
    const printed = await run(process.execPath, [join(compiled, "agent.js"), "What is here?", folder]);
    assert.match(printed, /^> (list_folder|read_file) \{\s*"path"/);
    assert.ok(printed.trim().split("\n").length > 1, printed);
  });
});
