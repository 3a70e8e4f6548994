// Safetensors models: a model written by the official Python package is served by both engines; a model is quantized on load.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import OpenAI from "openai";
import { readModelMetadata } from "../../../engines/files/gguf/metadata.ts";
import { readTensorTable } from "../../../engines/files/gguf/tensors.ts";
import { realModel } from "../../fixtures/models/models.ts";
import { runCommand, startServer } from "../../fixtures/serve.ts";
import { pythonEnvironment } from "../python/environment.ts";

const scripts = fileURLToPath(new URL("../../../../test/fixtures/checkpoints/unpack/", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "troupe-checkpoint-"));
const checkpoint = join(folder, "smollm2");
const environment = { XDG_CACHE_HOME: join(folder, "cache") };
const converted = join(environment.XDG_CACHE_HOME, "troupe", "models", "converted");
const small = ["--max-seqs", "2", "--max-model-len", "512"];
const question = {
  messages: [{ role: "user" as const, content: "Why is the sky blue?" }],
  max_tokens: 12,
  temperature: 0,
};

async function answerOf(flags: readonly string[]): Promise<{ text: string; log: string }> {
  const server = await startServer([...small, ...flags], environment);
  try {
    const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "any", maxRetries: 0 });
    const { choices } = await client.chat.completions.create({ ...question, model: "default" });
    return { text: choices[0]?.message.content ?? "", log: server.output() };
  } finally {
    await server.stop();
  }
}

describe("the default model as a checkpoint", () => {
  let gguf = "";
  let python = "";

  before(async () => {
    ({ path: gguf } = await realModel());
    python = await pythonEnvironment(join(scripts, "requirements.txt"));
    await promisify(execFile)(python, [join(scripts, "from_gguf.py"), gguf, checkpoint]);
  });
  after(() => rmSync(folder, { recursive: true, force: true }));

  it("is written with the same weights as its GGUF file has as F16, and the same tokenizer", async () => {
    const paths = ["a.gguf", "b.gguf"].map((name) => join(folder, name));
    for (const [i, source] of [gguf, checkpoint].entries()) {
      const { code, stderr } = await runCommand(["quantize", "-m", source, "--isq", "f16", "-o", paths[i] as string]);
      assert.equal(code, 0, stderr);
    }
    const [one, other] = await Promise.all(paths.map((path) => readTensorTable(path)));
    assert.deepEqual([...(other?.tensors.keys() ?? [])].sort(), [...(one?.tensors.keys() ?? [])].sort());
    const [ours, theirs] = paths.map((path) => readFileSync(path));
    for (const [name, { offset, bytes, type }] of one?.tensors ?? []) {
      const tensor = other?.tensors.get(name);
      assert.deepEqual([tensor?.type, tensor?.bytes], [type, bytes], name);
      const at = tensor?.offset ?? 0;
      // F32 tensors (norms) may differ, because the checkpoint stores them as F16.
      if (type !== 0)
        assert.ok(ours?.subarray(offset, offset + bytes).equals(theirs?.subarray(at, at + bytes) as Buffer), name);
    }
    const [old, now] = await Promise.all(paths.map((path) => readModelMetadata(path)));
    const { tokens, merges, types, pre, model, eosId } = old?.tokenizer ?? {};
    assert.deepEqual(now?.tokenizer.tokens, tokens);
    assert.deepEqual(now?.tokenizer.merges, merges);
    assert.deepEqual(now?.tokenizer.types, types);
    assert.deepEqual([now?.tokenizer.pre, now?.tokenizer.model, now?.tokenizer.eosId], [pre, model, eosId]);
    assert.deepEqual(now?.chatTemplates, old?.chatTemplates);
  });

  it("is served by both engines with the same text as its GGUF file as F16, and converted once", async () => {
    const texts: string[] = [];
    for (const engine of ["wasm", "llama"]) {
      for (const model of [checkpoint, join(folder, "a.gguf")]) {
        const { text, log } = await answerOf(["-m", model, "--engine", engine]);
        texts.push(text);
        const isFirst = model === checkpoint && engine === "wasm";
        assert.equal(/the model is converted/.test(log), isFirst, log);
      }
    }
    assert.ok((texts[0]?.length ?? 0) > 20);
    assert.equal(texts[1], texts[0], "wasm");
    assert.equal(texts[3], texts[2], "llama");
    assert.equal(readdirSync(converted).length, 1);
  });

  it("is served quantized, by number of bits", async () => {
    const { text, log } = await answerOf(["-m", checkpoint, "--isq", "8", "--engine", "wasm"]);
    assert.ok(text.length > 20, text);
    assert.match(log, /converting .*100 %/);
    assert.match(log, /target=\S+smollm2-Q8_0-/);
  });

  it("is written quantized so that Python's gguf package reads it", async () => {
    const path = join(folder, "q5.gguf");
    const { code, stderr } = await runCommand(["quantize", "-m", checkpoint, "--isq", "q5_0", "-o", path]);
    assert.equal(code, 0, stderr);
    const again = join(folder, "again");
    await promisify(execFile)(python, [join(scripts, "from_gguf.py"), path, again]);
    const [one, other] = [checkpoint, again].map((at) => JSON.parse(readFileSync(join(at, "tokenizer.json"), "utf8")));
    assert.deepEqual(other, one);
    assert.equal(readdirSync(again).filter((name) => name.endsWith(".safetensors")).length, 2);
  });

  it("is found in the quantization that quant asks for, or made", async () => {
    const { code, stderr } = await runCommand([
      "quantize",
      "-m",
      checkpoint,
      "--isq",
      "q4_0",
      "-o",
      join(folder, "several"),
      "--no-readme",
    ]);
    assert.equal(code, 0, stderr);
    const found = await answerOf(["-m", join(folder, "several"), "--quant", "q4_0"]);
    assert.doesNotMatch(found.log, /the model is converted/);
    const made = await answerOf(["-m", join(folder, "several"), "--quant", "5", "--engine", "wasm"]);
    assert.match(made.log, /the model is converted/);
  });

  it("is refused with settings that it does not fit", async () => {
    const refused = async (flags: readonly string[], message: RegExp, model = checkpoint) => {
      const { code, stderr } = await runCommand(["serve", "-m", model, ...flags], environment);
      assert.notEqual(code, 0);
      assert.match(stderr, message);
    };
    await refused(["--format", "gguf"], /format gguf expects a \.gguf file/);
    await refused(["--isq", "q9"], /isq expects/);
    await refused(["--hf-overrides", '{"architectures":["NoSuchModel"]}'], /"NoSuchModel", which cannot be loaded/);
    await refused(["--tok-model-id", join(folder, "none")], /none/);
    await refused(
      ["--hf-overrides", '{"rope_theta":1}'],
      /hf_overrides is a setting of a model in safetensors, .*gguf is a GGUF file; remove the setting/,
      gguf,
    );
    await refused(["--imatrix", "m.imatrix"], /imatrix expects isq, quant or a topology/);
  });
});
