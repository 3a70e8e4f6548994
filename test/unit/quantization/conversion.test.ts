// Conversions of GGUF files in real worker threads: types, bytes, interruptions, damaged sources.
import assert from "node:assert/strict";
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, beforeEach, describe, it } from "node:test";
import { readModelMetadata } from "../../../engines/files/gguf/metadata.ts";
import { readTensorTable, type TensorInfo, tensorTypes } from "../../../engines/files/gguf/tensors.ts";
import { ggufHead } from "../../../engines/files/gguf/writer.ts";
import { BlockCodec } from "../../../engines/quantization/codec/block-codec.ts";
import { convert } from "../../../engines/quantization/conversion/conversion.ts";
import { type ModelOptions, planModel } from "../../../engines/quantization/conversion/plan-model.ts";
import { readTypedPairs } from "../../../engines/quantization/conversion/typed-pairs.ts";
import { parseLevel } from "../../../engines/quantization/plan/levels.ts";
import { writeTinyModel } from "../../fixtures/models/tiny-gguf.ts";

const folder = mkdtempSync(join(tmpdir(), "troupe-conversion-"));
const source = join(folder, "source.gguf");
const target = join(folder, "target.gguf");
/** Returns the path of the unfinished file of a conversion. */
const partialOf = (key: string) => `${target}.${key.slice(0, 8)}.partial`;
const nothing: ModelOptions = {
  ...{ level: null, organization: "default", topology: [], floatType: null },
  ...{ importance: null, overrides: {}, tokenizer: null, slice: null, architecture: null, queryHeads: 1 },
};
const silent = () => {};

async function convertTo(level: string, changes: Partial<ModelOptions> = {}, signal?: AbortSignal): Promise<void> {
  const { conversion } = await planModel(source, { ...nothing, level: parseLevel(level, "isq"), ...changes }, silent);
  await convert(conversion, { target, threads: 2, signal });
}

function valuesOf(path: string, { type, offset, bytes, shape }: TensorInfo): Float32Array {
  const values = new Float32Array(shape.reduce((product, length) => product * length, 1));
  const stored = readFileSync(path).subarray(offset, offset + bytes);
  BlockCodec.create().decodeRows(type, stored, shape[0] ?? 1, values);
  return values;
}

describe("a conversion", () => {
  before(() => writeTinyModel(source, { seed: 5, width: 256, layers: 3 }));
  after(() => rmSync(folder, { recursive: true, force: true }));
  beforeEach(() => {
    for (const name of readdirSync(folder)) if (name.startsWith("target.gguf")) rmSync(join(folder, name));
  });

  it("writes each tensor in its type, close to the source, and keeps the other metadata", async () => {
    await convertTo("Q8_0");
    const [before, after] = [await readTensorTable(source), await readTensorTable(target)];
    assert.deepEqual([...after.tensors.keys()], [...before.tensors.keys()]);
    for (const [name, tensor] of after.tensors) {
      assert.equal(tensorTypes.get(tensor.type)?.name, tensor.shape.length > 1 ? "Q8_0" : "F32", name);
      const from = valuesOf(source, before.tensors.get(name) as TensorInfo);
      const largest = from.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
      for (const [i, value] of valuesOf(target, tensor).entries()) {
        assert.ok(Math.abs(value - (from[i] as number)) <= largest / 127, `${name}: ${value} for ${from[i]}`);
      }
    }
    const [old, now] = [await readModelMetadata(source), await readModelMetadata(target)];
    assert.deepEqual(now.tokenizer, old.tokenizer);
    assert.deepEqual(now.chatTemplates, old.chatTemplates);
    assert.equal(now.weightType, "Q8_0");
  });

  it("does not depend on the number of threads", async () => {
    await convertTo("Q4_K");
    const bytes = readFileSync(target);
    const { conversion } = await planModel(source, { ...nothing, level: parseLevel(4, "isq") }, silent);
    await convert(conversion, { target, threads: 1 });
    assert.deepEqual(readFileSync(target), bytes);
  });

  it("weighs errors by an importance matrix of the same model, and refuses that of another", async () => {
    await convertTo("Q4_K");
    const plain = readFileSync(target);
    const weights = new Float32Array(256).fill(1).map((_, i) => (i < 8 ? 100 : 1));
    await convertTo("Q4_K", { importance: new Map([["blk.0.attn_q.weight", weights]]) });
    assert.notDeepEqual(readFileSync(target), plain);
    const other = convertTo("Q4_K", { importance: new Map([["blk.0.attn_q.weight", new Float32Array(7)]]) });
    await assert.rejects(other, {
      code: "config_invalid",
      message: /has 7 values for "blk\.0\.attn_q\.weight"; expected 256/,
    });
    const strange = convertTo("Q4_K", { importance: new Map([["a.weight", weights]]) });
    await assert.rejects(strange, { code: "config_invalid", message: /no entry for any matrix/ });
  });

  it("that was interrupted keeps what was written, and ends with the same file", async () => {
    await convertTo("Q8_0");
    const whole = readFileSync(target);
    rmSync(target);
    const { conversion } = await planModel(source, { ...nothing, level: parseLevel(8, "isq") }, silent);
    const partial = partialOf(conversion.key);
    // Record as an interrupted conversion leaves it: only the first tensors are marked as written.
    const [first] = conversion.tensors;
    const chunk = whole.subarray(0, (first?.offset ?? 0) + 1000);
    writeFileSync(partial, Buffer.concat([chunk, Buffer.alloc(whole.length - chunk.length)]));
    const count = conversion.tensors.length;
    const bits = Buffer.alloc(Math.ceil(count / 8), 0xff);
    bits[bits.length - 1] = 0;
    writeFileSync(`${partial}.json`, JSON.stringify({ key: conversion.key, done: bits.toString("base64") }));
    await convert(conversion, { target, threads: 2 });
    const continued = readFileSync(target);
    const last = conversion.tensors.at(-1)?.offset ?? 0;
    assert.deepEqual(continued.subarray(last), whole.subarray(last), "what was not recorded is written");
    assert.notDeepEqual(continued, whole, "what was recorded is not written again");
    assert.ok(!existsSync(`${partial}.json`));
  });

  it("that is cancelled leaves a record of what is written", async () => {
    const { conversion } = await planModel(source, { ...nothing, level: parseLevel("q4_1", "isq") }, silent);
    const stop = new AbortController();
    const onProgress = () => stop.abort();
    await assert.rejects(convert(conversion, { target, threads: 1, signal: stop.signal, onProgress }), {
      code: "cancelled",
    });
    const { key, done } = JSON.parse(readFileSync(`${partialOf(conversion.key)}.json`, "utf8"));
    assert.equal(key, conversion.key);
    assert.ok(
      Buffer.from(done, "base64").some((bits) => bits !== 0),
      done,
    );
    await convert(conversion, { target, threads: 1 });
    const continued = readFileSync(target);
    rmSync(target);
    await convert(conversion, { target, threads: 1 });
    assert.deepEqual(continued, readFileSync(target));
  });

  it("shares the importance with its threads, which do not copy it", async () => {
    const importance = new Map([["blk.0.ffn_up.weight", new Float32Array(256).fill(2)]]);
    const { conversion } = await planModel(source, { ...nothing, level: parseLevel(4, "isq"), importance }, silent);
    const given = conversion.tensors.find(({ name }) => name === "blk.0.ffn_up.weight")?.importance;
    assert.ok(given?.buffer instanceof SharedArrayBuffer);
    assert.deepEqual([...given], [...importance.get("blk.0.ffn_up.weight")!]);
  });

  it("copies strings that are not UTF-8 and integers above 2^53 unchanged", async () => {
    const bytes = readFileSync(source);
    const name = bytes.indexOf("tiny", bytes.indexOf("general.name"));
    bytes.writeUInt8(0xff, name + 1);
    // Replaces the 32-bit context length by a 64-bit number.
    const key = bytes.indexOf("llama.context_length");
    const start = key - 8;
    const odd = 2n ** 60n + 1n;
    const pair = Buffer.alloc(8 + 20 + 4 + 8);
    pair.writeBigUInt64LE(20n);
    pair.write("llama.context_length", 8);
    pair.writeUInt32LE(10, 28);
    pair.writeBigUInt64LE(odd, 32);
    const path = join(folder, "odd.gguf");
    const end = start + 8 + 20 + 4 + 4;
    const changed = Buffer.concat([bytes.subarray(0, start), pair, bytes.subarray(end)]);
    writeFileSync(path, changed);
    const pairs = await readTypedPairs(path);
    const written = ggufHead(pairs, []).bytes;
    assert.deepEqual(
      Buffer.from(pairs.get("general.name")?.exact ?? []).subarray(8),
      Buffer.from([0x74, 0xff, 0x6e, 0x79]),
    );
    assert.ok(written.includes(pair) && written.includes(Buffer.from([0x74, 0xff, 0x6e, 0x79])));
    const count = changed.indexOf("general.architecture");
    const head = changed.subarray(count - 8, changed.indexOf("token_embd.weight") - 8);
    assert.ok(written.includes(head), "all pairs are those of the file");
  });

  it("ignores the record of another conversion, and one whose file is incomplete", async () => {
    const { conversion } = await planModel(source, { ...nothing, level: parseLevel(8, "isq") }, silent);
    const partial = partialOf(conversion.key);
    for (const key of ["of another", conversion.key]) {
      writeFileSync(partial, Buffer.alloc(10));
      writeFileSync(`${partial}.json`, JSON.stringify({ key, done: "////////" }));
      await convertTo("Q8_0");
      assert.ok((await readTensorTable(target)).tensors.size > 0);
      assert.ok(!existsSync(partial));
    }
  });

  it("that is cancelled fails with `cancelled`, and leaves no file under the final name", async () => {
    await assert.rejects(convertTo("Q8_0", {}, AbortSignal.abort()), { code: "cancelled" });
    assert.ok(!existsSync(target));
  });

  it("of a source with a NaN names tensor, row and column", async () => {
    const damaged = join(folder, "nan.gguf");
    const bytes = readFileSync(source);
    const { tensors } = await readTensorTable(source);
    const { offset = 0 } = tensors.get("blk.1.ffn_up.weight") ?? {};
    bytes.writeFloatLE(Number.NaN, offset + 4 * 256 * 3 + 4 * 5);
    writeFileSync(damaged, bytes);
    const { conversion } = await planModel(damaged, { ...nothing, level: parseLevel(8, "isq") }, silent);
    const message = /tensor "blk\.1\.ffn_up\.weight", from row 0: the value in row 3, column 5 is NaN/;
    await assert.rejects(convert(conversion, { target, threads: 2 }), { code: "model_file_invalid", message });
    assert.ok(!existsSync(target));
  });

  it("of a source that is truncated meanwhile fails", async () => {
    const cut = join(folder, "cut.gguf");
    writeFileSync(cut, readFileSync(source));
    const { conversion } = await planModel(cut, { ...nothing, level: parseLevel(8, "isq") }, silent);
    truncateSync(cut, statSync(cut).size - 5000);
    const failed = convert(conversion, { target, threads: 1 });
    await assert.rejects(failed, {
      code: "model_file_invalid",
      message: /cut\.gguf cannot be read any more \(it became shorter\)/,
    });
  });
});
