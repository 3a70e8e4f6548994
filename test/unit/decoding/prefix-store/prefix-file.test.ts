import assert from "node:assert/strict";
import { readFileSync, statSync, symlinkSync, truncateSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import {
  DamagedFile,
  prefixFileBytes,
  readPrefixFile,
  readPrefixHead,
  writePrefixFile,
} from "../../../../engines/decoding/prefix-store/prefix-file.ts";
import { contentOf, model, otherModel, temporaryFolder } from "./rig.ts";

describe("a file of the store", () => {
  it("returns what was written, and is readable only by its owner", (test) => {
    const path = join(temporaryFolder(test), "file");
    // The file is written and read in pieces of 1 MiB. The content is longer than one piece, and not a multiple of the piece size.
    const content = { ...contentOf(1, 333, 2 ** 20 + 12_345), adapter: "generation 7 ü" };
    writePrefixFile(path, model, content);
    assert.deepEqual(readPrefixFile(path, model), content);
    const { adapter, tokens, fileBytes } = readPrefixHead(path, model);
    assert.deepEqual({ adapter, tokens }, { adapter: content.adapter, tokens: content.tokens });
    assert.deepEqual([statSync(path).size, fileBytes], [fileBytes, prefixFileBytes(model, content)]);
    if (process.platform !== "win32") assert.equal(statSync(path).mode & 0o777, 0o600);
  });

  it("may have no KV and no tokens", (test) => {
    const path = join(temporaryFolder(test), "file");
    writePrefixFile(path, model, contentOf(1, 0, 0));
    assert.deepEqual(readPrefixFile(path, model), contentOf(1, 0, 0));
  });

  it("is marked as used when it is read, but not when it is looked at", (test) => {
    const path = join(temporaryFolder(test), "file");
    writePrefixFile(path, model, contentOf(1));
    utimesSync(path, 1, 1);
    readPrefixHead(path, model);
    assert.equal(statSync(path).mtimeMs, 1000);
    readPrefixFile(path, model);
    assert.ok(Date.now() - statSync(path).mtimeMs < 60_000);
  });

  it("is damaged if any byte is changed, missing or added", (test) => {
    const path = join(temporaryFolder(test), "file");
    writePrefixFile(path, model, contentOf(1, 3, 5));
    const whole = readFileSync(path);
    for (let at = 0; at < whole.length; at++) {
      const changed = Buffer.from(whole);
      changed[at] = (changed[at] as number) ^ 0x10;
      writeFileSync(path, changed);
      assert.throws(() => readPrefixFile(path, model), DamagedFile, `byte ${at}`);
    }
    writeFileSync(path, Buffer.concat([whole, Buffer.alloc(1)]));
    assert.throws(() => readPrefixFile(path, model), DamagedFile);
    for (let length = whole.length - 1; length >= 0; length--) {
      writeFileSync(path, whole);
      truncateSync(path, length);
      assert.throws(() => readPrefixHead(path, model), DamagedFile, `${length} bytes`);
    }
  });

  it("belongs to one model and one layout", (test) => {
    const path = join(temporaryFolder(test), "file");
    writePrefixFile(path, model, contentOf(1));
    assert.throws(() => readPrefixFile(path, otherModel), /it is of another model/);
    assert.throws(() => readPrefixFile(path, { ...model, layout: "another" }), /it is of another model/);
  });

  it("is neither written nor read through a link, and never written over another", {
    skip: process.platform === "win32",
  }, (test) => {
    const folder = temporaryFolder(test);
    const [path, link] = [join(folder, "file"), join(folder, "link")];
    symlinkSync(path, link);
    assert.throws(() => writePrefixFile(link, model, contentOf(1)), { code: "EEXIST" });
    writePrefixFile(path, model, contentOf(1));
    assert.throws(() => readPrefixFile(link, model), { code: "ELOOP" });
    assert.throws(() => writePrefixFile(path, model, contentOf(2)), { code: "EEXIST" });
    assert.throws(() => readPrefixFile(folder, model), DamagedFile);
  });
});
