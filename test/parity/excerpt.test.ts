// Model excerpts, on which `auto` measures the speed of the engines. Both engines load an excerpt of a model of every
// architecture and compute the same logits. Also tests the speed trial in a separate process: its measurements and the record
// that it writes.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { keepRecord, trialKey } from "../../engines/engine-choice/record.ts";
import { findTrial } from "../../engines/engine-choice/trial.ts";
import { type Excerpt, writeExcerpt } from "../../engines/files/gguf/excerpt.ts";
import { readTensorTable } from "../../engines/files/gguf/tensors.ts";
import { llamaEngine } from "../../engines/llama/engine.ts";
import { wasmEngine } from "../../engines/wasm/engine.ts";
import { errorShare, feedForAll } from "../fixtures/feeding.ts";
import { realModel, specOf } from "../fixtures/models/models.ts";
import { tinyArchitectures, writeTinyArchitecture } from "../fixtures/models/tiny-architectures.ts";
import { type EncoderArchitecture, writeTinyEncoder } from "../fixtures/models/tiny-encoder.ts";
import { writeTinyModel } from "../fixtures/models/tiny-gguf.ts";
import { until } from "../fixtures/streams.ts";

/** Maximum error as a fraction of the range of the logits if all weights are F16. */
const largestError = 0.003;
/** Maximum error with 4-bit weights. It is larger, because each engine quantizes activations in a different way. */
const largestQuantizedError = 0.02;
const rows = [
  { slot: 0, from: 0, to: 30 },
  { slot: 1, from: 0, to: 1 },
];

describe("an excerpt of a model", () => {
  let folder = "";
  before(() => {
    folder = mkdtempSync(join(tmpdir(), "troupe-excerpt-"));
  });
  after(() => rmSync(folder, { recursive: true, force: true }));

  const excerptOf = async (path: string, maxWeights: number): Promise<Excerpt & { path: string }> => {
    const target = `${path}.excerpt`;
    return { ...(await writeExcerpt(path, target, maxWeights)), path: target };
  };

  /** Asserts that both engines compute the same logits for `rows`, up to the error `largest`. */
  const compare = async (path: string, largest = largestError): Promise<void> => {
    const spec = specOf(path, { kvType: "f16", threads: 1, extraLogitsRows: 32 });
    const llama = await llamaEngine.load(spec, () => {});
    const expected = feedForAll(llama, rows);
    llama.dispose();
    const wasm = await wasmEngine.load(spec, () => {});
    const actual = feedForAll(wasm, rows);
    wasm.dispose();
    for (const [row, positions] of expected.entries()) {
      for (const [i, logits] of positions.entries()) {
        const error = errorShare(logits, actual[row]![i]!);
        assert.ok(error <= largest, `row ${row}, token ${i}: ${error}`);
      }
    }
  };

  for (const [at, name] of tinyArchitectures.entries()) {
    it(`has one layer if no more fit, and runs on both engines: ${name}`, async () => {
      const path = join(folder, `${at}.gguf`);
      await writeTinyArchitecture(path, name, { seed: 21 });
      const excerpt = await excerptOf(path, 1);
      const { tensors } = await readTensorTable(excerpt.path);
      const layers = new Set([...tensors.keys()].flatMap((key) => /^blk\.(\d+)\./.exec(key)?.[1] ?? []));
      assert.deepEqual([...layers], ["0"]);
      await compare(excerpt.path);
    });
  }

  it("has as many layers as fit", async () => {
    const path = join(folder, "layers.gguf");
    await writeTinyModel(path, { seed: 4, layers: 4, tied: false });
    const half = await excerptOf(path, (await weightCount(path)) * 0.6);
    const { fields } = await readTensorTable(half.path);
    assert.equal(fields.get("llama.block_count"), 2);
    assert.ok(half.share > 0.5 && half.share < 0.75, `${half.share}`);
    await compare(half.path);
    const whole = await excerptOf(path, 2 ** 30);
    assert.deepEqual([whole.share, whole.vocabSize], [1, 512]);
    await compare(whole.path);
  });

  it("has the same fraction of a large vocabulary", async (test) => {
    const { path, isReal } = await realModel();
    if (!isReal) return test.skip("the default model cannot be fetched");
    const target = join(folder, "real.gguf");
    const { share, vocabSize } = await writeExcerpt(path, target, (await weightCount(path)) * 0.51);
    const { fields, tensors } = await readTensorTable(target);
    assert.deepEqual([fields.get("llama.block_count"), vocabSize], [15, 24_576]);
    assert.deepEqual(tensors.get("token_embd.weight")?.shape, [576, 24_576]);
    assert.ok(Math.abs(share - 0.5) < 0.001, `${share}`);
    await compare(target, largestQuantizedError);
  });

  it("is rejected for a file that has no layers", async () => {
    const damaged = join(folder, "nothing.gguf");
    await assert.rejects(writeExcerpt(damaged, `${damaged}.excerpt`, 1), { code: "model_file_invalid" });
  });
});

async function weightCount(path: string): Promise<number> {
  const { tensors } = await readTensorTable(path);
  return [...tensors.values()].reduce(
    (sum, { shape }) => sum + shape.reduce((product, length) => product * length, 1),
    0,
  );
}

describe("a trial of the engines", () => {
  let folder = "";
  before(() => {
    folder = mkdtempSync(join(tmpdir(), "troupe-trial-test-"));
  });
  after(() => rmSync(folder, { recursive: true, force: true }));

  const record = (name: string) => ({ path: join(folder, name, "trials.json"), version: "1" });

  it("measures both engines at prompts and decodes, and stores the results", async () => {
    const path = join(folder, "model.gguf");
    await writeTinyModel(path, { seed: 4 });
    const kept = record("kept");
    const { figures, isNew } = await findTrial(specOf(path), kept);
    assert.ok(isNew);
    const bytes = statSync(path).size;
    for (const { prompt, oneRow, sixteenRows, weightBytes } of [figures.wasm, figures.llama]) {
      assert.ok(prompt > 0 && (oneRow ?? 0) > 0 && (sixteenRows ?? 0) > 0);
      // The loaded weights differ in size from the file: the file also contains a vocabulary, and llama.cpp may store a
      // matrix twice, the second time in the layout of its kernels.
      assert.ok(weightBytes > bytes / 4 && weightBytes < 2 * bytes, `${weightBytes} bytes of weights in ${bytes}`);
    }
    const written = statSync(kept.path).mtimeMs;
    assert.deepEqual(await findTrial(specOf(path), kept), { figures, isNew: false });
    assert.equal(statSync(kept.path).mtimeMs, written, "the record was written again");
  });

  it("identifies a model by its shapes, and measures again for other threads or another version", async () => {
    const kept = record("keys");
    const [path, like, other] = ["a", "b", "c"].map((name) => join(folder, `${name}.gguf`)) as [string, string, string];
    await writeTinyModel(path, { seed: 1 });
    await writeTinyModel(like, { seed: 2 });
    await writeTinyModel(other, { seed: 1, layers: 3 });
    const trials = () => (JSON.parse(readFileSync(kept.path, "utf8")) as { trials: object[] }).trials.length;
    await findTrial(specOf(path, { threads: 1 }), kept);
    await findTrial(specOf(like, { threads: 1 }), kept);
    assert.equal(trials(), 1);
    await findTrial(specOf(other, { threads: 1 }), kept);
    await findTrial(specOf(path, { threads: 2 }), kept);
    await findTrial(specOf(path, { threads: 1 }), { ...kept, version: "2" });
    assert.equal(trials(), 4);
  });

  // With these settings the first KV blocks of all sequences are on the same thread, whose memory must have room for all of them.
  for (const settings of [
    { threads: 3, pagedKv: false },
    { threads: 2, blockTokens: 256 },
  ]) {
    it(`has room for its sequences with ${JSON.stringify(settings)}`, async () => {
      const path = join(folder, "threads.gguf");
      await writeTinyModel(path, { seed: 4 });
      const { figures } = await findTrial(specOf(path, settings), record(`threads-${settings.threads}`));
      assert.ok((figures.wasm.sixteenRows ?? 0) > 0 && (figures.llama.sixteenRows ?? 0) > 0);
    });
  }

  it("is repeated at the next start if it failed", async () => {
    const path = join(folder, "failed.gguf");
    await writeTinyModel(path, { seed: 4, layers: 2 });
    const kept = record("failed");
    const { TMPDIR } = process.env;
    process.env.TMPDIR = join(folder, "not-there");
    try {
      await assert.rejects(findTrial(specOf(path), kept), /ENOENT/);
    } finally {
      if (TMPDIR === undefined) delete process.env.TMPDIR;
      else process.env.TMPDIR = TMPDIR;
    }
    assert.ok((await findTrial(specOf(path), kept)).isNew);
  });

  it("is not repeated for a day if it took too long", async () => {
    const path = join(folder, "failed.gguf");
    await writeTinyModel(path, { seed: 4, layers: 2 });
    const kept = record("slow");
    await keepRecord(kept.path, await trialKey(specOf(path), kept.version), { failure: "it took 20 s" });
    await assert.rejects(findTrial(specOf(path), kept), /it took 20 s \(the last trial was less than a day ago/);
    const { trials } = JSON.parse(readFileSync(kept.path, "utf8")) as { trials: { at: number }[] };
    for (const trial of trials) trial.at -= 25 * 60 * 60 * 1000;
    writeFileSync(kept.path, JSON.stringify({ trials }));
    assert.ok((await findTrial(specOf(path), kept)).isNew);
  });

  for (const architecture of ["bert", "nomic-bert", "modern-bert"] satisfies EncoderArchitecture[]) {
    it(`measures encoders at reading texts: ${architecture}`, async () => {
      const path = join(folder, `${architecture}.gguf`);
      await writeTinyEncoder(path, { seed: 1, pooling: "cls", architecture });
      const { wasm, llama } = (await findTrial(specOf(path), record(architecture))).figures;
      assert.ok(wasm.prompt > 0 && llama.prompt > 0);
      assert.deepEqual([wasm.oneRow, llama.sixteenRows], [null, null]);
    });
  }

  it("leaves no file if its server is killed while it runs", async () => {
    const path = join(folder, "model.gguf");
    const temporary = mkdtempSync(join(folder, "tmp-"));
    const module = new URL("../../engines/engine-choice/trial.js", import.meta.url).href;
    const script = `import(${JSON.stringify(module)}).then((m) => m.findTrial(${JSON.stringify(specOf(path))}, { path: null, version: "1" }))`;
    const server = spawn(process.execPath, ["-e", script], {
      env: { ...process.env, TMPDIR: temporary },
      stdio: "ignore",
    });
    await until(() => readdirSync(temporary).length > 0 || server.exitCode !== null, "a temporary folder");
    assert.equal(server.exitCode, null, "the trial was over before it could be stopped");
    server.kill("SIGKILL");
    await until(() => readdirSync(temporary).length === 0, "its removal");
  });

  it("measures again if the record is damaged, and continues if it cannot be written", async () => {
    const path = join(folder, "model.gguf");
    const kept = record("kept");
    writeFileSync(kept.path, "{");
    assert.ok((await findTrial(specOf(path), kept)).figures.wasm.prompt > 0);
    assert.doesNotThrow(() => JSON.parse(readFileSync(kept.path, "utf8")));
    const nowhere = { path: join(path, "trials.json"), version: "1" };
    assert.ok((await findTrial(specOf(path), nowhere)).figures.wasm.prompt > 0);
    assert.ok(!existsSync(nowhere.path));
  });
});
