import assert from "node:assert/strict";
import { renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { modelFingerprint } from "../../../../engines/decoding/prefix-store/fingerprint.ts";
import { temporaryFolder } from "./rig.ts";

const mebibyte = 2 ** 20;

describe("the fingerprint of a model", () => {
  it("distinguishes files by their beginning, middle, end and size, but not by their name", async (test) => {
    const folder = temporaryFolder(test);
    const path = join(folder, "model.gguf");
    const bytes = Buffer.alloc(12 * mebibyte);
    const fingerprintOf = async (content: Buffer) => {
      writeFileSync(path, content);
      return modelFingerprint(path);
    };
    const changedAt = (start: number, length: number) => {
      const changed = Buffer.from(bytes);
      return changed.fill(1, start, start + length);
    };
    const whole = await fingerprintOf(bytes);
    const different = await Promise.all([
      await fingerprintOf(changedAt(0, 1)),
      await fingerprintOf(changedAt(4 * mebibyte - 1, 1)),
      // The changed part is smaller than a layer of a model, so real changes are found too.
      await fingerprintOf(changedAt(7 * mebibyte, bytes.length / 128)),
      await fingerprintOf(changedAt(bytes.length - 1, 1)),
      await fingerprintOf(bytes.subarray(1)),
    ]);
    assert.equal(new Set([whole, ...different]).size, 6);
    assert.equal(await fingerprintOf(bytes), whole);
    renameSync(path, join(folder, "other.gguf"));
    assert.equal(await modelFingerprint(join(folder, "other.gguf")), whole);
  });

  it("covers all files of a split model", async (test) => {
    const folder = temporaryFolder(test);
    const shards = [1, 2].map((shard) => join(folder, `m-0000${shard}-of-00002.gguf`));
    const [first = "", second = ""] = shards;
    for (const shard of shards) writeFileSync(shard, "same");
    const before = await modelFingerprint(first);
    assert.equal(await modelFingerprint(second), before);
    writeFileSync(second, "other");
    assert.notEqual(await modelFingerprint(first), before);
  });
});
