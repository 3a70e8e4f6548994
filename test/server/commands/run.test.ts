// `troupe run` for users and scripts: every test runs the command itself with a generated model. Tests of the interactive
// conversation use a real terminal, created with Python's pty module.
import assert from "node:assert/strict";
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { stripVTControlCharacters } from "node:util";
import { writePeftAdapter } from "../../fixtures/lora/lora.ts";
import { writeTinyModel } from "../../fixtures/models/tiny-gguf.ts";

const command = fileURLToPath(new URL("../../../../cli/troupe.mjs", import.meta.url));
const limitMs = 60_000;
const small = ["--cpu", "--threads", "1", "--seed", "1"];

let folder = "";
let model = "";
let lora = "";
before(async () => {
  folder = mkdtempSync(join(tmpdir(), "troupe-run-"));
  model = join(folder, "tiny.gguf");
  // The response is random text that ends only when the context is full. The context is long, so that a response is still
  // running when a test stops it.
  await writeTinyModel(model, { seed: 1, contextLength: 16_384 });
  lora = join(folder, "lora");
  await writePeftAdapter(lora, { modelPath: model, seed: 1, magnitude: 3 });
});
after(() => rmSync(folder, { recursive: true, force: true }));

const runArguments = (flags: readonly string[]) => [command, "run", "-m", model, ...small, ...flags];
const environment = () => ({ ...process.env, XDG_STATE_HOME: folder, TERM: "xterm" });

interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs the command until it exits. Calls `meanwhile` after the first output. */
async function run(
  flags: readonly string[],
  input: string | null,
  meanwhile: (child: ChildProcess) => void = () => {},
): Promise<Ended> {
  const stdin = input === null ? "ignore" : "pipe";
  const child = spawn(process.execPath, runArguments(flags), { env: environment(), stdio: [stdin, "pipe", "pipe"] });
  child.stdin?.end(input);
  const said = { stdout: "", stderr: "" };
  child.stderr?.on("data", (data) => {
    said.stderr += data;
  });
  child.stdout?.on("data", (data) => {
    if (said.stdout === "") meanwhile(child);
    said.stdout += data;
  });
  const [code] = (await once(child, "exit", { signal: AbortSignal.timeout(limitMs) })) as [number | null];
  return { code, ...said };
}

describe("one message", () => {
  const short = ["--max-model-len", "128"];

  it("is answered only on stdout, the same from -i as from a pipe", async () => {
    const given = await run([...short, "-i", "hello"], null);
    assert.equal(given.code, 0, given.stderr);
    assert.match(given.stderr, /^\d+ tokens, [\d.]+ tok\/s, first token \d+ ms, \d+ prompt tokens$/m);
    assert.ok(given.stdout.length > 50 && given.stdout.endsWith("\n"), given.stdout);
    const piped = await run(short, "hello\n");
    assert.deepEqual([piped.code, piped.stdout], [0, given.stdout], piped.stderr);
  });

  it("that does not fit is an error on stderr and exit code 1", async () => {
    const { code, stdout, stderr } = await run([...short, "-i", "hello ".repeat(500)], null);
    assert.deepEqual({ code, stdout }, { code: 1, stdout: "" }, stderr);
    assert.match(stderr, /^troupe: .*128/m);
    assert.doesNotMatch(stderr, /\n {4}at /, "a person is shown a stack");
  });

  it("is answered with the adapter that is named, or that belongs to the model", async () => {
    const answer = async (...flags: string[]) => {
      const { code, stdout, stderr } = await run([...short, "-i", "hello", ...flags], null);
      assert.equal(code, 0, stderr);
      return stdout;
    };
    const base = await answer();
    const adapted = await answer("--lora", `code=${lora}`, "--adapter", "code");
    assert.notEqual(adapted, base);
    assert.equal(await answer("--lora", `code=${lora}`), base);
    assert.equal(await answer("--legacy-lora", lora), adapted);
  });

  it("is expected, on stdin if not as a flag", async () => {
    const { code, stderr } = await run([], "");
    assert.equal(code, 2, stderr);
    assert.match(stderr, /expected a message: -i TEXT, or text on stdin; got none/);
  });

  it("is interrupted by ctrl-c with exit code 130", async () => {
    const { code, stdout, stderr } = await run(["-i", "hello"], null, (child) => child.kill("SIGINT"));
    assert.equal(code, 130, stderr);
    assert.notEqual(stdout, "");
    assert.doesNotMatch(stderr, /\n {4}at /, "a person is shown a stack");
  });

  it("ends quietly when its reader leaves", async () => {
    const { code, stderr } = await run(["-i", "hello"], null, (child) => child.stdout?.destroy());
    assert.equal(code, 0, stderr);
    assert.doesNotMatch(stderr, /EPIPE|\n {4}at /);
  });
});

/** Python program that runs a command on a new terminal, connected to the program's own stdin and stdout. */
const onTerminal = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
const hasTerminals = spawnSync("python3", ["-c", "import os, pty; os.waitstatus_to_exitcode"]).status === 0;

class Terminal {
  readonly #process: ChildProcess;
  readonly ended: Promise<number | null>;
  #seen = "";

  constructor(flags: readonly string[]) {
    const argv = ["-c", onTerminal, process.execPath, ...runArguments(flags)];
    this.#process = spawn("python3", argv, { env: environment(), stdio: ["pipe", "pipe", "inherit"] });
    this.#process.stdout?.on("data", (data) => {
      this.#seen += data;
    });
    this.ended = once(this.#process, "exit").then(([code]) => code as number | null);
  }

  type(keys: string): void {
    this.#process.stdin?.write(keys);
  }

  /** Reads until the output matches the pattern. */
  async sees(pattern: RegExp): Promise<void> {
    const deadline = Date.now() + limitMs;
    while (Date.now() < deadline) {
      const shown = stripVTControlCharacters(this.#seen);
      if (pattern.test(shown)) {
        this.#seen = "";
        return;
      }
      await sleep(5);
    }
    this.#process.kill();
    throw new Error(`${pattern} was not seen in ${JSON.stringify(this.#seen.slice(-500))}`);
  }
}

describe("a conversation on a terminal", { skip: hasTerminals ? false : "python3 is not here to make one" }, () => {
  it("streams answers, stops one at ctrl-c, saves what was said, and leaves at ctrl-d", async () => {
    const transcript = join(folder, "chat.json");
    const terminal = new Terminal([]);
    await terminal.sees(/\/help lists the commands.*> /s);
    terminal.type("/system be brief\r");
    await terminal.sees(/system prompt set.*> /s);
    terminal.type("\x1b[200~one\rtwo\x1b[201~\r");
    await terminal.sees(/\. two.{200}/s);
    terminal.type("\x03");
    await terminal.sees(/stopped here.*> /s);
    terminal.type(`/save ${transcript}\r`);
    await terminal.sees(/saved to.*> /s);
    terminal.type("\x04");
    assert.equal(await terminal.ended, 0);

    const saved = JSON.parse(readFileSync(transcript, "utf8")) as { messages: { role: string; content: string }[] };
    const [system, question, answer, ...others] = saved.messages;
    assert.deepEqual(
      [system, question],
      [
        { role: "system", content: "be brief" },
        { role: "user", content: "one\ntwo" },
      ],
    );
    assert.equal(answer?.role, "assistant");
    assert.ok(answer.content.length > 50);
    assert.deepEqual(others, []);

    const history = join(folder, "troupe", "run-history");
    assert.equal(statSync(history).mode & 0o777, 0o600);
    assert.equal(readFileSync(history, "utf8"), `/system be brief\ntwo\n/save ${transcript}\n`);
  });

  it("continues with and without an adapter", async () => {
    const transcript = join(folder, "adapted.json");
    const terminal = new Terminal(["--max-model-len", "128", "--lora", `code=${lora}`, "--adapter", "code"]);
    await terminal.sees(/tiny\.gguf with code.*> /s);
    terminal.type("/adapter none\r");
    await terminal.sees(/no adapter: the base model answers.*> /s);
    terminal.type("/adapter\r");
    await terminal.sees(/\* none\s+code.*> /s);
    terminal.type("/adapter code\rhi\r");
    await terminal.sees(/the adapter is code.*\d+ tokens, .*> /s);
    terminal.type(`/save ${transcript}\r\x04`);
    assert.equal(await terminal.ended, 0);
    assert.equal(JSON.parse(readFileSync(transcript, "utf8")).adapter, "code");
  });

  it("shows the cost of a response, removes a message that does not fit, and exits at the second ctrl-c", async () => {
    const terminal = new Terminal(["--max-model-len", "128"]);
    await terminal.sees(/> /);
    terminal.type("hi\r");
    await terminal.sees(/the context is full; .*\d+ tokens, [\d.]+ tok\/s, first token \d+ ms, \d+ prompt tokens.*> /s);
    terminal.type("hi again\r");
    await terminal.sees(/the message is removed .*; \/clear empties.*> /s);
    terminal.type("/clear\rhi\r");
    await terminal.sees(/conversation cleared.*\d+ tokens, .*> /s);
    terminal.type("\x03");
    await terminal.sees(/ctrl-c again or ctrl-d to exit/);
    terminal.type("\x03");
    assert.equal(await terminal.ended, 0);
  });
});
