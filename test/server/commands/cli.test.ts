// The command line as a user sees it: every test runs the command itself, most with the generated model.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import module from "node:module";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import OpenAI from "openai";
import { loadableEdges } from "../../fixtures/http-server.ts";
import { writePeftAdapter } from "../../fixtures/lora/lora.ts";
import { tinyModel } from "../../fixtures/models/models.ts";
import { writeTinyEncoder } from "../../fixtures/models/tiny-encoder.ts";
import { type RunningServer, runCommand, startCommand, startServer } from "../../fixtures/serve.ts";

const root = new URL("../../../../", import.meta.url);
const command = fileURLToPath(new URL("cli/troupe.mjs", root));
const small = ["--threads", "1", "--max-seqs", "2", "--max-model-len", "256"];

let directory = "";
let model = "";
before(async () => {
  directory = mkdtempSync(join(tmpdir(), "troupe-cli-"));
  // The path is unique, so that this test's processes can be told apart from those of other tests.
  model = join(directory, "only-here.gguf");
  copyFileSync(await tinyModel(), model);
});
after(() => rmSync(directory, { recursive: true, force: true }));

/** Runs a command that must fail with exit code 2 and one line on stderr. */
async function assertRefused(argv: readonly string[], message: RegExp): Promise<void> {
  const { code, stdout, stderr } = await runCommand(argv);
  assert.deepEqual({ code, stdout }, { code: 2, stdout: "" }, stderr);
  assert.match(stderr, message);
  assert.doesNotMatch(stderr, /\n {4}at /, "a person is shown a stack");
}

async function assertStops(server: RunningServer): Promise<void> {
  assert.deepEqual(await server.stop(), { code: 0, signal: null });
  assert.deepEqual(processesWith(directory), []);
}

/** Returns the command lines of running processes that contain a path. */
function processesWith(path: string): string[] {
  const lines = execFileSync("ps", ["-A", "-o", "args="], { encoding: "utf8" }).split("\n");
  return lines.filter((line) => line.includes(path));
}

const clientOf = ({ url }: RunningServer) => new OpenAI({ baseURL: `${url}/v1`, apiKey: "any", maxRetries: 0 });

function answerOf(server: RunningServer, name: string): Promise<OpenAI.ChatCompletion> {
  const messages = [{ role: "user" as const, content: "hi" }];
  return clientOf(server).chat.completions.create({ model: name, messages, max_tokens: 3 });
}

describe("asking for help", () => {
  it("lists the commands, and the flags of one with their defaults", async () => {
    const general = await runCommand(["--help"]);
    assert.equal(general.code, 0);
    assert.match(
      general.stdout,
      /serve .*\n.*run .*\n.*agent .*\n.*bench .*\n.*tune .*\n.*from-config .*\n.*models .*\n.*cache .*\n.*quantize .*\n.*uqff .*\n.*login/,
    );
    const serve = await runCommand(["help", "serve"]);
    assert.equal(serve.code, 0);
    assert.match(serve.stdout, /-p, --port N .*\[default: 1234\]/);
    assert.match(serve.stdout, /--max-seqs N .*\n *\[default: 32\]/);
    assert.match(serve.stdout, /-m, --model-id MODEL/);
    assert.equal(serve.stderr, "");
  });

  it("is no failure if its reader is gone", async () => {
    const child = spawn(process.execPath, [command, "help", "serve"], { stdio: ["ignore", "pipe", "pipe"] });
    child.stdout.destroy();
    let stderr = "";
    child.stderr.on("data", (data) => {
      stderr += data;
    });
    const [code] = (await once(child, "close")) as [number | null];
    assert.deepEqual({ code, stderr }, { code: 0, stderr: "" });
  });

  it("says the version, in one line", async () => {
    const { version } = JSON.parse(readFileSync(new URL("package.json", root), "utf8")) as { version: string };
    assert.deepEqual(await runCommand(["--version"]), { code: 0, stdout: `troupe ${version}\n`, stderr: "" });
  });
});

describe("compiled code", () => {
  it("is kept in the user's cache by versions of Node.js that can, for threads too", async () => {
    const cache = join(directory, "cache");
    const kept = join(cache, "troupe", "compiled");
    const server = await startServer(["-m", model, ...small], { XDG_CACHE_HOME: cache });
    await assertStops(server);
    if (!("enableCompileCache" in module)) {
      assert.equal(existsSync(kept), false);
      return;
    }
    const files = readdirSync(kept, { recursive: true });
    // The command itself has some 30 modules, a server with its threads over 800.
    assert.ok(files.length > 500, `${files.length} files`);
  });

  it("is not needed: a cache that cannot be written changes nothing", async () => {
    const cache = join(directory, "cache-file");
    writeFileSync(cache, "");
    const { code, stderr } = await runCommand(["--version"], { XDG_CACHE_HOME: cache });
    assert.deepEqual({ code, stderr }, { code: 0, stderr: "" });
  });
});

describe("a command line that cannot be carried out", () => {
  it("is refused with the nearest flag or command there is", async () => {
    await assertRefused(["serve", "--prot", "1"], /unknown flag "--prot"; did you mean "--port"\?/);
    await assertRefused(["srve"], /unknown command "srve"; did you mean "serve"\?/);
  });

  it("is rejected if it uses planned features", async () => {
    await assertRefused(["update"], /"update" is not supported yet/);
  });

  it("names an invalid adapter, and its model", async () => {
    const broken = join(directory, "broken");
    mkdirSync(broken);
    for (const [source, problem] of [
      [broken, "there is no adapter_config\\.json"],
      [join(directory, "no-lora"), "nothing is at "],
    ]) {
      const { code, stderr } = await runCommand(["serve", "--port", "0", "-m", model, "--lora", `code=${source}`]);
      assert.equal(code, 1);
      assert.match(
        stderr,
        new RegExp(`^troupe: (lora|adapter) "code" of model ".*only-here\\.gguf": .*${problem}`, "m"),
      );
    }
    await assertRefused(
      ["run", "-m", model, "--adapter", "code", "-i", "hi"],
      /--adapter expects the alias of an adapter in lora/,
    );
  });

  it("names a model file that is not there and what a model is", async () => {
    const missing = join(directory, "missing.gguf");
    const { code, stderr } = await runCommand(["serve", "--port", "0", "-m", missing]);
    assert.equal(code, 1);
    assert.match(stderr, /no file at ".*missing\.gguf"; .*a model is a path of a \.gguf file .* or pypi:/);
  });

  it("is told in one line if the model cannot be loaded", async () => {
    const template = join(directory, "broken.jinja");
    writeFileSync(template, "{{ x");
    const own = ["serve", "--port", "0", "-m", model, "--engine", "wasm", "--log-level", "warn"];
    for (const [flags, problem] of [
      [["-c", template], /chat template cannot be compiled/],
      [["-c", join(directory, "none.jinja")], /none\.jinja, which cannot be read/],
      [["--kv-cache", "1KiB"], /the KV cache budget/],
    ] as const) {
      const { code, stderr } = await runCommand([...own, ...flags]);
      assert.notEqual(code, 0);
      const lines = stderr.split("\n").filter((line) => line !== "" && !line.startsWith("load "));
      assert.equal(lines.length, 1, stderr);
      assert.match(lines[0] ?? "", problem);
    }
  });

  it("reports a port that is in use", async () => {
    const taken = createServer().listen(0, "127.0.0.1");
    await once(taken, "listening");
    const { port } = taken.address() as { port: number };
    for (const edge of loadableEdges()) {
      const argv = ["serve", "-m", model, "--cpu", "--host", "127.0.0.1", "--port", String(port), "--edge", edge];
      await assertRefused(argv, new RegExp(`127\\.0\\.0\\.1:${port} is already in use`));
    }
    taken.close();
  });
});

describe("a model with an alias", () => {
  it("is listed and answers by its alias only", async () => {
    const server = await startServer(["-m", model, "--alias", "chat", ...small]);
    const { data } = await clientOf(server).models.list();
    assert.deepEqual(
      data.map(({ id }) => id),
      ["default", "chat"],
    );
    assert.equal((await answerOf(server, "chat")).model, "chat");
    await assert.rejects(answerOf(server, model), { status: 404 });
    await assertStops(server);
  });
});

describe("troupe models", () => {
  it("lists recommended models with their memory, and the models on this machine", async () => {
    const { code, stdout } = await runCommand(["models"]);
    assert.equal(code, 0);
    assert.match(stdout, /^MODEL +DOWNLOAD +MEMORY +FITS/);
    assert.match(stdout, /qwen3-0\.6b +639\.0 MB +1\.85 GB +(yes|no) +Apache-2\.0/);
    const listed = JSON.parse((await runCommand(["models", "--json"])).stdout);
    assert.ok(listed.recommended.length >= 12 && listed.available_memory_bytes > 0);
  });
});

describe("from-config", () => {
  const write = (name: string, lines: readonly string[]) => {
    const path = join(directory, name);
    writeFileSync(path, `${lines.join("\n")}\n`);
    return path;
  };

  it("serves the models of a file with its settings, the default one by name", async () => {
    const second = join(directory, "second.gguf");
    copyFileSync(model, second);
    const file = write("two.toml", [
      'command = "serve"',
      "max_seqs = 3",
      `default_model_id = ${JSON.stringify(second)}`,
      "[server]",
      'host = "127.0.0.1"',
      "port = 0",
      "[troupe]",
      "threads = 1",
      "[[models]]",
      `model_id = ${JSON.stringify(model)}`,
      "max_model_len = 128",
      "[[models]]",
      `model_id = ${JSON.stringify(second)}`,
      "max_model_len = 256",
    ]);
    const server = await startCommand(["from-config", "-f", file]);
    assert.equal((await answerOf(server, "default")).model, second);
    assert.equal((await answerOf(server, model)).model, model);
    assert.deepEqual(
      (await clientOf(server).models.list()).data.map(({ id }) => id),
      ["default", model, second],
    );
    const sizes = [...server.output().matchAll(/model=(\S+) .*sequences=(\d+) tokensPerSequence=(\d+)/g)];
    assert.deepEqual(
      new Map(sizes.map(([, id, count, length]) => [id, `${count} of ${length}`])),
      new Map([
        [model, "3 of 128"],
        [second, "3 of 256"],
      ]),
    );
    await assertStops(server);
  });

  it("names the file and the line of a value it cannot use", async () => {
    const lines = ['command = "serve"', "", "[server]", 'port = "many"', "[[models]]", `model_id = "${model}"`];
    await assertRefused(
      ["from-config", "-f", write("bad.toml", lines)],
      /bad\.toml:4: port expects a whole number from 0 to 65535; got "many"/,
    );
    await assertRefused(["from-config", "-f", join(directory, "none.toml")], /none\.toml" cannot be read/);
  });

  it("names both lines of settings that exclude one another, and says of older ones what to write", async () => {
    const model = ["[[models]]", 'model_id = "m.gguf"'];
    const paged = ['command = "serve"', "[paged_attn]"];
    const conflict = write("conflict.toml", [...paged, 'mode = "off"', 'kv_cache = "1GiB"', ...model]);
    await assertRefused(
      ["from-config", "-f", conflict],
      /conflict\.toml:3: "mode" = "off" conflicts with "kv_cache" \(.*conflict\.toml:4\)/,
    );
    await assertRefused(
      ["from-config", "-f", write("older.toml", [...paged, "memory_mb = 4096", ...model])],
      /older\.toml:3: "memory_mb" is a key of 0\.9\.4; write kv_cache = "4096MiB" instead/,
    );
    await assertRefused(
      ["from-config", "-f", write("planned.toml", [...paged, 'cache_type = "f8e4m3"', ...model])],
      /planned\.toml:3: cache_type: "f8e4m3" is not supported yet by this version of troupe; remove it/,
    );
  });
});

describe("bench", () => {
  const quick = [
    "--cpu",
    "--threads",
    "1",
    "--max-seqs",
    "8",
    "--prompt-len",
    "32,64",
    "--gen-len",
    "16",
    "--iterations",
    "2",
  ];

  it("prints rows of plausible numbers as JSON, and nothing else", async () => {
    const { code, stdout, stderr } = await runCommand(["bench", "-m", model, ...quick, "--json"]);
    assert.equal(code, 0, stderr);
    const { rows, settings } = JSON.parse(stdout) as {
      rows: {
        kind: string;
        sequences: number;
        promptLength: number;
        tokensPerSecond: number;
        outsideShare: number;
        rounds: number[];
      }[];
      settings: { genLen: number };
    };
    assert.equal(settings.genLen, 16);
    const prefill = rows.filter(({ kind }) => kind === "prefill");
    assert.deepEqual(
      prefill.map(({ promptLength }) => promptLength),
      [32, 64],
    );
    const decode = rows.filter(({ kind }) => kind === "decode");
    assert.deepEqual(
      decode.map(({ sequences }) => sequences),
      [1, 8, 4],
    );
    for (const { kind, tokensPerSecond, outsideShare, rounds } of rows) {
      assert.ok(tokensPerSecond > 10 && tokensPerSecond < 1e7, `${kind}: ${tokensPerSecond} tokens/s`);
      assert.ok(outsideShare > 0 && outsideShare < 1, `${kind}: ${outsideShare} outside the forward pass`);
      assert.equal(rounds.length, 2);
      assert.ok(Math.min(...rounds) <= tokensPerSecond && tokensPerSecond <= Math.max(...rounds));
    }
  });

  it("measures the model with an adapter", async () => {
    const lora = join(directory, "lora");
    await writePeftAdapter(lora, { modelPath: model, seed: 1 });
    const adapted = ["--lora", `code=${lora}`, "--adapter", "code"];
    const { code, stdout, stderr } = await runCommand(["bench", "-m", model, ...quick, ...adapted, "--json"]);
    assert.equal(code, 0, stderr);
    const { settings, rows } = JSON.parse(stdout) as { settings: { adapter: string }; rows: unknown[] };
    assert.deepEqual([settings.adapter, rows.length], ["code", 6]);
  });

  it("measures an encoder by texts embedded at once", async () => {
    const encoder = join(directory, "encoder.gguf");
    await writeTinyEncoder(encoder, { seed: 1, pooling: "mean" });
    const { code, stdout, stderr } = await runCommand(["bench", "-m", encoder, ...quick]);
    assert.equal(code, 0, stderr);
    const rows = [...stdout.matchAll(/^embedding +(\d+) +(\d+) +0 +[\d.]+ /gm)].map(([, ...counts]) =>
      counts.join(" of "),
    );
    assert.deepEqual(rows, ["1 of 32", "8 of 32", "1 of 64", "8 of 64"]);
  });

  it("prints a table for people", async () => {
    const { code, stdout, stderr } = await runCommand(["bench", "-m", model, ...quick]);
    assert.equal(code, 0, stderr);
    assert.match(stdout, /^what +sequences +prompt +new +tokens\/s/m);
    assert.match(stdout, /^prefill +1 +32 +0 +[\d.]+ /m);
    assert.match(stdout, /^decode +8 +4 +16 +[\d.]+ /m);
  });
});

describe("serve", () => {
  for (const edge of loadableEdges()) {
    it(`streams a real answer on the ${edge} edge`, async () => {
      const server = await startServer(["-m", model, ...small, "--edge", edge]);
      assert.match(server.output(), new RegExp(`serving on the ${edge} edge`));
      const messages = [{ role: "user" as const, content: "hi" }];
      const body = { model: "default", messages, stream: true as const, max_tokens: 20, ignore_eos: true };
      const chunks: OpenAI.ChatCompletionChunk[] = [];
      for await (const chunk of await clientOf(server).chat.completions.create(body)) chunks.push(chunk);
      assert.equal(chunks.at(-1)?.choices[0]?.finish_reason, "length");
      assert.equal(chunks.at(-1)?.usage?.completion_tokens, 20);
      await assertStops(server);
    });
  }

  it("runs a model in its own process with --isolate false, and stops with 0", async () => {
    const server = await startServer(["-m", model, ...small, "--isolate", "false"]);
    assert.deepEqual(server.enginePids(), [server.process.pid]);
    assert.equal((await answerOf(server, "default")).usage?.completion_tokens, 3);
    await assertStops(server);
  });

  it("stops at once when told to while a model is loading, and leaves no process", async () => {
    const serve = ["serve", "--port", "0", "--cpu", "--isolate", "true"];
    const server = spawn(process.execPath, [command, ...serve, "-m", model, ...small], {
      stdio: ["ignore", "pipe", "pipe"],
    });
    let output = "";
    for (const stream of [server.stdout, server.stderr]) stream.on("data", (data) => (output += data));
    const exit = once(server, "exit");
    // Wait for two processes: the command's own, and the one that loads the model.
    while (processesWith(model).length < 2) await sleep(10);
    const start = performance.now();
    server.kill("SIGTERM");
    const [code, signal] = await exit;
    const ms = performance.now() - start;
    assert.equal(signal, null, output);
    assert.ok(code === 0 || code === 1, `it ended with code ${code}:\n${output}`);
    assert.doesNotMatch(output, /\n {4}at /, "a person is shown a stack");
    assert.ok(ms < 5000, `it took ${ms} ms`);
    assert.deepEqual(processesWith(model), []);
  });
});
