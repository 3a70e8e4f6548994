import assert from "node:assert/strict";
import { readFile, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import fc from "fast-check";
import { readModelMetadata } from "../../../../engines/files/gguf/metadata.ts";
import { createVocabulary } from "../../../../engines/text/tokenizer/vocabulary.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { tinyControlTokens, writeTinyModel } from "../../../fixtures/models/tiny-gguf.ts";
import { inTemporaryFolder, tinyMetadata } from "./tiny-vocabulary.ts";

function invalidFile(words: RegExp): (error: unknown) => boolean {
  return (error) => error instanceof ServerError && error.code === "model_file_invalid" && words.test(error.message);
}

function assertRefused(error: unknown): void {
  assert.ok(error instanceof ServerError && error.code === "model_file_invalid", String(error));
}

function u32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

function name(text: string): Buffer {
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  return Buffer.concat([length, Buffer.from(text)]);
}

/** Returns the first bytes of a file that has no tensors and `pairCount` metadata pairs. */
function head(pairCount: number): Buffer {
  const counts = Buffer.alloc(16);
  counts.writeBigUInt64LE(BigInt(pairCount), 8);
  return Buffer.concat([Buffer.from("GGUF"), u32(3), counts]);
}

describe("model file metadata", () => {
  it("has the model's values in the file", async () => {
    const metadata = await tinyMetadata({ contextLength: 640 });
    assert.equal(metadata.architecture, "llama");
    assert.equal(metadata.name, "tiny");
    assert.equal(metadata.contextLength, 640);
    assert.match(metadata.chatTemplates.get("default") ?? "", /im_start/);
  });

  it("has the vocabulary", async () => {
    const { tokenizer } = await tinyMetadata();
    assert.equal(tokenizer.model, "gpt2");
    assert.equal(tokenizer.pre, "smollm");
    assert.equal(tokenizer.tokens.length, 512);
    assert.deepEqual(tokenizer.tokens.slice(0, 3), tinyControlTokens);
    assert.deepEqual([tokenizer.bosId, tokenizer.eosId, tokenizer.eotId], [1, 2, null]);
    assert.equal(tokenizer.addBos, false);
    assert.equal(tokenizer.addSpacePrefix, null);
  });

  it("keeps a byte order mark at the start of a string", async () => {
    const metadata = await tinyMetadata({ chatTemplate: "\ufeffhello" });
    assert.equal(metadata.chatTemplates.get("default"), "\ufeffhello");
  });

  it("is the same for the same seed", () =>
    inTemporaryFolder(async (folder) => {
      const paths = ["a", "b", "c"].map((name) => join(folder, name));
      await Promise.all(paths.map((path, i) => writeTinyModel(path, { seed: i === 2 ? 9 : 8 })));
      const [a, b, c] = await Promise.all(paths.map((path) => readFile(path)));
      assert.ok(a!.equals(b!));
      assert.ok(!a!.equals(c!));
    }));

  it("reports a missing file, and a folder", () =>
    inTemporaryFolder(async (folder) => {
      await assert.rejects(readModelMetadata(join(folder, "none.gguf")), invalidFile(/no such file/));
      await assert.rejects(readModelMetadata(folder), invalidFile(/not a file/));
    }));

  it("reports a file that is not GGUF, or has another version", () =>
    inTemporaryFolder(async (folder) => {
      const path = join(folder, "model.gguf");
      await writeFile(path, "<html>not found</html>");
      await assert.rejects(readModelMetadata(path), invalidFile(/starts with "GGUF"/));
      const old = Buffer.from("GGUF\x01\0\0\0");
      await writeFile(path, old);
      await assert.rejects(readModelMetadata(path), invalidFile(/version 1/));
    }));

  it("reports a truncated file, for any length", () =>
    inTemporaryFolder(async (folder) => {
      const path = join(folder, "model.gguf");
      await writeTinyModel(path, { seed: 1, layers: 1 });
      const whole = await readFile(path);
      const headEnds = whole.indexOf("output_norm.weight");
      for (const length of [0, 3, 7, 20, 100, 5_000, headEnds, headEnds + 40]) {
        await writeFile(path, whole.subarray(0, length));
        await assert.rejects(readModelMetadata(path), invalidFile(/incomplete/), `cut at ${length}`);
      }
    }));

  it("refuses lists that are nested too deeply", () =>
    inTemporaryFolder(async (folder) => {
      const path = join(folder, "model.gguf");
      for (const key of ["tokenizer.ggml.tokens", "unwanted.key"]) {
        const list = Buffer.alloc(12);
        list.writeUInt32LE(9, 0);
        list.writeBigUInt64LE(1n, 4);
        await writeFile(path, Buffer.concat([head(1), name(key), u32(9), ...Array<Buffer>(400_000).fill(list)]));
        await assert.rejects(readModelMetadata(path), invalidFile(/lists are nested more than 8 deep/));
      }
    }));

  it("reads only the maximum head of a large file, for any length it names", () =>
    inTemporaryFolder(async (folder) => {
      const path = join(folder, "model.gguf");
      const longKey = Buffer.alloc(8);
      longKey.writeBigUInt64LE(2n ** 40n);
      await writeFile(path, Buffer.concat([head(1), longKey]));
      await truncate(path, 2 ** 40);
      const before = process.memoryUsage().rss;
      await assert.rejects(readModelMetadata(path), invalidFile(/does not end within/));
      assert.ok(process.memoryUsage().rss - before < 2 ** 30);
    }));

  it("refuses an invalid token id", () =>
    inTemporaryFolder(async (folder) => {
      const path = join(folder, "model.gguf");
      await writeTinyModel(path, { seed: 1, layers: 1 });
      const bytes = await readFile(path);
      const at = bytes.indexOf("tokenizer.ggml.bos_token_id") + "tokenizer.ggml.bos_token_id".length;
      bytes.writeUInt32LE(5, at); // The type of the value is now i32.
      bytes.writeInt32LE(-1, at + 4);
      await writeFile(path, bytes);
      assert.equal((await readModelMetadata(path)).tokenizer.bosId, null);
      bytes.writeUInt32LE(6, at); // The type of the value is now f32.
      bytes.writeFloatLE(1.5, at + 4);
      await writeFile(path, bytes);
      assert.equal((await readModelMetadata(path)).tokenizer.bosId, null);
    }));

  it("refuses a vocabulary without tokens", () =>
    inTemporaryFolder(async (folder) => {
      const path = join(folder, "model.gguf");
      const strings = (key: string, value: string) => [name(key), u32(8), name(value)];
      const none = [name("tokenizer.ggml.tokens"), u32(9), u32(8), Buffer.alloc(8)];
      const pairs = [strings("general.architecture", "llama"), strings("tokenizer.ggml.model", "llama"), none];
      await writeFile(path, Buffer.concat([head(pairs.length), ...pairs.flat(), Buffer.alloc(64)]));
      await assert.rejects(readModelMetadata(path), invalidFile(/no token in tokenizer\.ggml\.tokens/));
    }));

  it("reads or refuses a head with any change", () =>
    inTemporaryFolder(async (folder) => {
      const path = join(folder, "model.gguf");
      await writeTinyModel(path, { seed: 1, layers: 1 });
      const whole = await readFile(path);
      const headBytes = whole.indexOf("output_norm.weight");
      const damage = fc.record({ at: fc.nat(headBytes), bytes: fc.uint8Array({ minLength: 1, maxLength: 9 }) });
      await fc.assert(
        fc.asyncProperty(
          fc.array(damage, { minLength: 1, maxLength: 4 }),
          fc.nat(2 * headBytes),
          async (all, length) => {
            const damaged = Buffer.from(whole);
            for (const { at, bytes } of all) damaged.set(bytes, at);
            await writeFile(path, damaged.subarray(0, length < headBytes ? length : undefined));
            await readModelMetadata(path).then(({ tokenizer }) => createVocabulary(tokenizer), assertRefused);
          },
        ),
        { numRuns: 60, seed: 5 },
      );
    }));

  it("survives any damaged byte of the head", () =>
    inTemporaryFolder(async (folder) => {
      const path = join(folder, "model.gguf");
      await writeTinyModel(path, { seed: 1, layers: 1 });
      const whole = await readFile(path);
      for (let at = 8; at < 1_200; at += 17) {
        const damaged = Buffer.from(whole);
        damaged[at] = (damaged[at] as number) ^ 0xff;
        await writeFile(path, damaged);
        await readModelMetadata(path).catch((error) => assert.ok(error instanceof ServerError, String(error)));
      }
    }));
});
