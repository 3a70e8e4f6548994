import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { readModelMetadata } from "../../../engines/gguf/metadata.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { tinyControlTokens, writeTinyModel } from "../../fixtures/tiny-gguf.ts";
import { inTemporaryFolder, tinyMetadata } from "./tiny-vocabulary.ts";

function invalidFile(words: RegExp): (error: unknown) => boolean {
  return (error) => error instanceof ServerError && error.code === "model_file_invalid" && words.test(error.message);
}

describe("model file metadata", () => {
  it("holds what the file says of the model", async () => {
    const metadata = await tinyMetadata({ contextLength: 640 });
    assert.equal(metadata.architecture, "llama");
    assert.equal(metadata.name, "tiny");
    assert.equal(metadata.contextLength, 640);
    assert.match(metadata.chatTemplates.get("default") ?? "", /im_start/);
  });

  it("holds the vocabulary", async () => {
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

  it("says that there is no file, or that it is a folder", () =>
    inTemporaryFolder(async (folder) => {
      await assert.rejects(readModelMetadata(join(folder, "none.gguf")), invalidFile(/no such file/));
      await assert.rejects(readModelMetadata(folder), invalidFile(/not a file/));
    }));

  it("says that a file is not GGUF, or of another version", () =>
    inTemporaryFolder(async (folder) => {
      const path = join(folder, "model.gguf");
      await writeFile(path, "<html>not found</html>");
      await assert.rejects(readModelMetadata(path), invalidFile(/starts with "GGUF"/));
      const old = Buffer.from("GGUF\x01\0\0\0");
      await writeFile(path, old);
      await assert.rejects(readModelMetadata(path), invalidFile(/version 1/));
    }));

  it("says that a file is incomplete, wherever it was cut off", () =>
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
