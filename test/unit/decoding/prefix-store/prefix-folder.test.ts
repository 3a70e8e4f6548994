import assert from "node:assert/strict";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  renameSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { describe, it } from "node:test";
import { prefixFileBytes } from "../../../../engines/decoding/prefix-store/prefix-file.ts";
import { PrefixFolder } from "../../../../engines/decoding/prefix-store/prefix-folder.ts";
import { contentOf, fileName, filesIn, model, otherModel, temporaryFolder, totalBytes } from "./rig.ts";

const plenty = 2 ** 30;
const isWindows = process.platform === "win32";

function namesOf(folder: PrefixFolder): string[] {
  return folder.list().map(({ name }) => name);
}

/** Sets the time of last use of a file, in seconds since 1970. */
function usedAt(path: string, second: number): void {
  utimesSync(path, second, second);
}

describe("the folder of the store", () => {
  it("has a complete, private file for each prefix", (test) => {
    const path = join(temporaryFolder(test), "new", "store");
    const folder = new PrefixFolder({ folder: path, maxBytes: plenty }, model);
    const { name, fileBytes } = folder.write(contentOf(1), null);
    assert.match(name, fileName);
    const { adapter, tokens } = contentOf(1);
    assert.deepEqual(folder.list(), [{ name, fileBytes, adapter, tokens }]);
    assert.deepEqual(folder.read(name), contentOf(1));
    const [file = ""] = filesIn(path);
    assert.deepEqual(filesIn(path), [file]);
    if (isWindows) return;
    for (const each of [path, dirname(file)]) assert.equal(statSync(each).mode & 0o777, 0o700);
  });

  it("separates models, layouts, adapters and tokens", (test) => {
    const path = temporaryFolder(test);
    const open = (of: typeof model) => new PrefixFolder({ folder: path, maxBytes: plenty }, of);
    const models = [model, otherModel, { ...model, layout: "another engine" }];
    for (const of of models) open(of).write(contentOf(1), null);
    open(model).write({ ...contentOf(1), adapter: "x" }, null);
    open(model).write(contentOf(1, 99), null);
    assert.deepEqual(
      models.map((of) => open(of).list().length),
      [3, 1, 1],
    );
    assert.equal(new Set(filesIn(path)).size, 5);
  });

  it("removes the least recently used files of any model to stay within its bytes", (test) => {
    const path = temporaryFolder(test);
    const maxBytes = 3.5 * prefixFileBytes(model, contentOf(1));
    const [mine, other] = [model, otherModel].map((of) => new PrefixFolder({ folder: path, maxBytes }, of));
    assert.ok(mine && other);
    const foreign = other.write(contentOf(1), null).name;
    const second = mine.write(contentOf(2), null).name;
    const third = mine.write(contentOf(3), null).name;
    for (const file of filesIn(path)) usedAt(file, file.endsWith(foreign) ? 20 : file.endsWith(second) ? 10 : 30);
    mine.read(second);
    const { name: fourth, removed } = mine.write(contentOf(4), null);
    assert.deepEqual([other.list(), removed], [[], []]);
    assert.deepEqual(new Set(namesOf(mine)), new Set([second, third, fourth]));
    assert.deepEqual(mine.write(contentOf(5), null).removed, [third]);
    assert.ok(totalBytes(path) <= maxBytes);
  });

  it("removes the expendable file first, and nothing while there is room", (test) => {
    const path = temporaryFolder(test);
    const maxBytes = 2.5 * prefixFileBytes(model, contentOf(1));
    const folder = new PrefixFolder({ folder: path, maxBytes }, model);
    const old = folder.write(contentOf(1), null).name;
    const expendable = folder.write(contentOf(2), old).name;
    for (const file of filesIn(path)) usedAt(file, file.endsWith(old) ? 10 : 20);
    assert.equal(folder.list().length, 2);
    assert.deepEqual(folder.write(contentOf(3), expendable).removed, [expendable]);
  });

  it("refuses a file above its limit, and keeps the others", (test) => {
    const path = temporaryFolder(test);
    const folder = new PrefixFolder({ folder: path, maxBytes: 4000 }, model);
    const { name } = folder.write(contentOf(1), null);
    assert.throws(() => folder.write(contentOf(2, 100, 4000), null), /larger than all the room/);
    assert.deepEqual(namesOf(folder), [name]);
  });

  it("shrinks when it is opened with less room", (test) => {
    const path = temporaryFolder(test);
    const folder = new PrefixFolder({ folder: path, maxBytes: plenty }, model);
    for (const seed of [1, 2, 3]) folder.write(contentOf(seed), null);
    new PrefixFolder({ folder: path, maxBytes: 2 * prefixFileBytes(model, contentOf(1)) }, otherModel);
    assert.equal(folder.list().length, 2);
  });

  it("ignores the unfinished file of a killed writer", (test) => {
    const path = temporaryFolder(test);
    const folder = new PrefixFolder({ folder: path, maxBytes: plenty }, model);
    folder.write(contentOf(1), null);
    folder.write(contentOf(2), null);
    const [dead = "", alive = ""] = filesIn(path);
    renameSync(dead, `${dead}.0123abcd.part`);
    usedAt(`${dead}.0123abcd.part`, 10);
    renameSync(alive, `${alive}.0123abcd.part`);
    assert.deepEqual(new PrefixFolder({ folder: path, maxBytes: plenty }, model).list(), []);
    // A recently written file is kept, because its writer may still be running.
    assert.deepEqual(filesIn(path), [`${alive}.0123abcd.part`]);
  });

  it("never touches foreign files, also if it needs room", { skip: isWindows }, (test) => {
    const path = temporaryFolder(test);
    const outside = temporaryFolder(test);
    writeFileSync(join(outside, "precious"), "precious");
    const folder = new PrefixFolder({ folder: path, maxBytes: 4000 }, model);
    const { name } = folder.write(contentOf(1), null);
    const home = dirname(filesIn(path)[0] as string);
    const foreign = [
      join(path, "notes.txt"),
      join(home, "notes.txt"),
      join(home, `${name}.bak`),
      join(path, "a", name),
    ];
    mkdirSync(join(path, "a"));
    for (const file of foreign) writeFileSync(file, "x".repeat(5000));
    const link = join(
      home,
      name.replace(/^./, (first) => (first === "0" ? "1" : "0")),
    );
    symlinkSync(join(outside, "precious"), link);
    symlinkSync(outside, join(path, "0123456789abcdef0123456789abcdef"));
    writeFileSync(join(outside, name), "x".repeat(5000));
    folder.write(contentOf(2, 100, 3000), null);
    for (const file of [...foreign, link, join(outside, "precious"), join(outside, name)])
      assert.ok(existsSync(file), file);
    assert.equal(folder.list().length, 1);
    assert.throws(() => folder.read(link.slice(home.length + 1)), { code: "ELOOP" });
  });

  it("does not list its unreadable files, but counts them", (test) => {
    const path = temporaryFolder(test);
    const folder = new PrefixFolder({ folder: path, maxBytes: 4000 }, model);
    folder.write(contentOf(1), null);
    const [file = ""] = filesIn(path);
    writeFileSync(file, "x".repeat(3500));
    usedAt(file, 10);
    assert.deepEqual(folder.list(), []);
    const { name } = folder.write(contentOf(2), null);
    assert.deepEqual([namesOf(folder), readdirSync(dirname(file))], [[name], [name]]);
  });

  it("is refused, naming the setting, if it cannot be written to or is a link", {
    skip: isWindows,
  }, (test) => {
    const path = temporaryFolder(test);
    const refused = { name: "ServerError", code: "config_invalid", param: "prefix_cache_dir" };
    writeFileSync(join(path, "file"), "");
    assert.throws(() => new PrefixFolder({ folder: join(path, "file"), maxBytes: plenty }, model), refused);
    const store = join(path, "store");
    new PrefixFolder({ folder: store, maxBytes: plenty }, model);
    const [home = ""] = readdirSync(store);
    renameSync(join(store, home), join(path, "elsewhere"));
    symlinkSync(join(path, "elsewhere"), join(store, home));
    assert.throws(() => new PrefixFolder({ folder: store, maxBytes: plenty }, model), {
      ...refused,
      message: /is a link/,
    });
    if (process.getuid?.() === 0) return;
    chmodSync(path, 0o500);
    test.after(() => chmodSync(path, 0o700));
    assert.throws(() => new PrefixFolder({ folder: join(path, "new"), maxBytes: plenty }, model), refused);
  });
});
