import assert from "node:assert/strict";
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { deflateRawSync } from "node:zlib";
import { skillLimits } from "../../../../../actors/api/agent/skills.ts";
import { executable, fields, regular, skillText, type ZipEntry, zip } from "../../../../fixtures/skills/zip-builder.ts";
import { SkillRig } from "../../state/skill-rig.ts";

const main: ZipEntry = { name: "a/SKILL.md", content: skillText("a") };
const zeros = (bytes: number): Uint8Array => new Uint8Array(bytes);
const file = (name: string, rest: Partial<ZipEntry> = {}): ZipEntry => ({ name, content: "x", ...rest });

/** Returns the fields of a zip entry with `bytes` zero bytes, compressed. Its header claims the size `stated`. */
function bomb(bytes: number, stated: number): Partial<ZipEntry> {
  return { packed: deflateRawSync(zeros(bytes)), size: stated };
}

const attacks: readonly (readonly [what: string, archive: () => Uint8Array, error: RegExp])[] = [
  ["a path out of the folder", () => zip([main, file("../evil")]), /zip archive|file name/],
  ["a path out of the folder, deep within", () => zip([main, file("a/b/../../../evil")]), /zip archive|file name/],
  ["an absolute path", () => zip([main, file("/etc/passwd")]), /zip archive|absolute/],
  ["a drive letter", () => zip([main, file("C:/evil")]), /zip archive|characters/],
  ["a backslash", () => zip([main, file("a\\..\\evil")]), /zip archive|backslash/],
  ["a dot as a folder", () => zip([main, file("a/./b")]), /as a folder/],
  ["an empty folder name", () => zip([main, file("a//b")]), /empty folder name/],
  ["a NUL", () => zip([main, file("a/b\0c")]), /control or invisible/],
  ["a control character", () => zip([main, file("a/b\nc")]), /control or invisible/],
  ["a mark that reverses text", () => zip([main, file("a/b\u202ecod.exe")]), /control or invisible/],
  ["a device name", () => zip([main, file("a/CON")]), /device/],
  ["a device name with an extension", () => zip([main, file("a/nul.txt")]), /device/],
  ["a device name as a folder", () => zip([main, file("a/COM1/b")]), /device/],
  ["a trailing dot", () => zip([main, file("a/b.")]), /ends with a space or a dot/],
  ["a trailing space", () => zip([main, file("a/b ")]), /ends with a space or a dot/],
  ["a name above 255 bytes", () => zip([main, file(`a/${"x".repeat(256)}`)]), /longer than 255/],
  [
    "a path above 1024 bytes",
    () => zip([main, file(`a/${"x".repeat(200)}/`.repeat(6).concat("y"))]),
    /longer than 1024/,
  ],
  ["too many folders", () => zip([main, file(`a/${"b/".repeat(20)}c`)]), /at most 16 folders/],
  ["one path twice", () => zip([main, file("a/b"), file("a/b")]), /once/],
  ["paths that differ in case", () => zip([main, file("a/read"), file("a/READ")]), /one name/],
  ["paths that differ in Unicode form", () => zip([main, file("a/é"), file("a/é")]), /once|one name/],
  ["paths with compatible characters", () => zip([main, file("a/ﬁ"), file("a/fi")]), /one name/],
  ["folders that differ in case", () => zip([main, file("a/b/c"), file("a/B/d")]), /one name/],
  ["a file that is needed as a folder", () => zip([main, file("a/b"), file("a/b/c")]), /both a file and a folder/],
  ["a folder that is needed as a file", () => zip([main, file("a/b/c"), file("a/b")]), /both a file and a folder/],
  ["two top-level folders", () => zip([main, file("b/c")]), /one top-level folder/],
  ["no SKILL.md", () => zip([file("a/b")]), /SKILL\.md/],
  ["no SKILL.md at the top", () => zip([{ ...main, name: "a/b/SKILL.md" }]), /SKILL\.md/],
  ["SKILL.md in lower case", () => zip([{ ...main, name: "a/skill.md" }]), /SKILL\.md/],
  ["a SKILL.md that is a folder", () => zip([file("a/SKILL.md/"), file("a/SKILL.md/b")]), /content|SKILL\.md/],
  ["a symbolic link", () => zip([main, file("a/b", { content: "/etc", mode: 0o120777 })]), /link/],
  ["a device", () => zip([main, file("a/b", { mode: 0o020666 })]), /device/],
  ["a pipe", () => zip([main, file("a/b", { mode: 0o010666 })]), /special/],
  ["a socket", () => zip([main, file("a/b", { mode: 0o140666 })]), /special/],
  ["a folder that says it is a file", () => zip([main, { name: "a/b/", mode: regular }]), /special/],
  ["a file that says it is a folder", () => zip([main, file("a/b", { mode: 0o040755 })]), /special/],
  ["a folder with content", () => zip([main, file("a/b/", { method: 0, mode: 0o040755 })]), /folder with content/],
  ["an encrypted entry", () => zip([main, file("a/b", { flags: 0x801 })]), /encrypted/],
  ["strong encryption", () => zip([main, file("a/b", { flags: 0x841 })]), /encrypt/],
  ["an encrypted directory", () => zip([main, file("a/b", { flags: 0x2800 })]), /encrypt/],
  ["another compression", () => zip([main, file("a/b", { method: 14 })]), /compression method 14/],
  ["a wrong checksum", () => zip([main, file("a/b", { crc: 1 })]), /checksum/],
  ["a wrong checksum of a stored entry", () => zip([main, file("a/b", { crc: 1, method: 0 })]), /checksum/],
  ["damaged data", () => zip([main, file("a/b", { packed: Buffer.from([255, 255, 255]) })]), /not damaged/],
  ["a stored entry of another size", () => zip([main, file("a/b", { method: 0, size: 5 })]), /mismatch/],
  ["another name in the local header", () => zip([main, file("a/b", { localName: "c/d" })]), /differs/],
  ["another size in the local header", () => zip([main, file("a/b", { localSize: 99 })]), /differs/],
  ["other flags in the local header", () => zip([main, file("a/b", { localFlags: 0x801 })]), /differs/],
  ["entries that share their data", () => zip([main, file("a/b"), file("a/c", { offset: 0 })]), /differs|overlap/],
  ["an entry that lies in the directory", () => zip([main, file("a/b", { offset: 60 })]), /not damaged/],
  ["an offset beyond the archive", () => zip([main, file("a/b", { offset: 99_999 })]), /not damaged/],
  ["more entries than it states", () => zip([main, file("a/b")], { count: 1 }), /end record/],
  ["fewer entries than it states", () => zip([main, file("a/b")], { count: 3 }), /not damaged/],
  [
    "the size of its data in zip64 fields",
    () => zip([main, file("a/b", { size: 0xffffffff, localSize: 0xffffffff })]),
    /at most|not damaged/,
  ],
  ["a zip64 end record", () => zip([main], { beforeEnd: zip64End(1e15) }), /zip64|entries/],
  ["a zip64 end record with the right count", () => zip([main], { beforeEnd: zip64End(1) }), /not damaged|zip64/],
  ["bytes before the end record", () => zip([main], { beforeEnd: zeros(100) }), /end record/],
  ["an end record in its comment", () => zip([main], { comment: `PK\x05\x06${"\0".repeat(30)}` }), /not damaged/],
  ["501 files", () => zip([main, ...Array.from({ length: 500 }, (_, i) => file(`a/${i}`))]), /at most 500 files/],
  ["100,000 entries", () => many(), /at most 2000 entries/],
  ["large comments", () => zip([main, ...Array.from({ length: 20 }, (_, i) => commented(i))]), /list of entries/],
  ["a file of 1 GiB", () => zip([main, file("a/b", bomb(2 ** 20, 2 ** 30))]), /at most/],
  [
    "files above 100 MiB together",
    () => zip([main, ...[1, 2, 3].map((i) => file(`a/${i}`, bomb(1000, 40e6)))]),
    /together/,
  ],
  ["a file of zeros", () => zip([main, { name: "a/b", content: zeros(50e6) }]), /times their compressed size/],
  ["a file that is larger than it states", () => zip([main, file("a/b", bomb(50e6, 1000))]), /not damaged/],
  ["a file that is smaller than it states", () => zip([main, file("a/b", bomb(1000, 2000))]), /not damaged/],
  ["no bytes", () => zeros(0), /not damaged/],
  ["zeros", () => zeros(1000), /not damaged/],
  ["no entries", () => zip([]), /SKILL\.md/],
  ["its beginning only", () => zip([main]).subarray(0, 60), /not damaged/],
];

function zip64End(count: number): Uint8Array {
  const record = fields([4, 0x06064b50], [4, 44], [4, 0], [2, 45], [2, 45], [4, 0], [4, 0]);
  const counts = Buffer.alloc(32);
  counts.writeBigUInt64LE(BigInt(count), 0);
  counts.writeBigUInt64LE(BigInt(count), 8);
  return Buffer.concat([record, counts, fields([4, 0x07064b50], [4, 0], [4, 0], [4, 0], [4, 1])]);
}

/**
 * Returns a zip file with 60,000 entries that share one local header. The entry count in the end record has only 16
 * bits, which limits the number.
 */
function many(): Uint8Array {
  return zip([main, ...Array.from({ length: 60_000 }, (_, i) => file(`a/${i}`, { offset: 0 }))]);
}

function commented(i: number): ZipEntry {
  return file(`a/${i}`, { comment: Buffer.alloc(65_000) });
}

describe("skill archives", () => {
  let rig: SkillRig;
  before(async () => {
    rig = await SkillRig.open();
  });
  after(() => rig.dispose());

  it("are unpacked with folders, without their top-level folder, read-only", async () => {
    const skill = await rig.uploadZip(
      zip([
        { name: "any-name/", mode: 0o040755 },
        { ...main, name: "any-name/SKILL.md" },
        { name: "any-name/scripts/run.sh", content: "#!/bin/sh\necho hi\n", mode: 0o104777 },
        { name: "any-name/data.bin", content: zeros(100_000), mode: 0 },
        { name: "any-name/stored.txt", content: "plain", method: 0, mode: executable },
      ]),
    );
    const found = await rig.store.content({ id: skill.id, version: null });
    assert.ok(found !== null);
    const modeOf = (name: string) => statSync(join(found.folder, name)).mode & 0o7777;
    assert.equal(readFileSync(join(found.folder, "SKILL.md"), "utf8"), skillText("a"));
    assert.equal(readFileSync(join(found.folder, "data.bin")).length, 100_000);
    assert.equal(readFileSync(join(found.folder, "stored.txt"), "utf8"), "plain");
    // Unpacking clears the permissions of other users, write permission, and the set-user-id bit.
    assert.deepEqual(
      ["SKILL.md", "scripts/run.sh", "data.bin", "stored.txt"].map(modeOf),
      [0o400, 0o500, 0o400, 0o500],
    );
  });

  it("may have their files at the top, sizes after the data, and a comment", async () => {
    const after = { flags: 0x808, localFlags: 0x808, localSize: 0 };
    const archive = zip([{ ...main, name: "SKILL.md", ...after }, file("b/c")], { comment: "made by hand" });
    // The local header contains neither size nor checksum.
    Buffer.from(archive.buffer).fill(0, 14, 26);
    const { id } = await rig.uploadZip(archive);
    assert.ok(statSync(join(rig.contents.folderOf(id, 1), "b", "c")).isFile());
  });

  for (const [what, archive, error] of attacks) {
    it(`are refused with ${what}`, async () => {
      const before = rig.onDisk();
      await assert.rejects(rig.uploadZip(archive()), { code: "invalid_value", param: "files", message: error });
      assert.deepEqual(rig.onDisk(), before, "no file is left");
    });
  }

  it("may contain another archive, which is not unpacked", async () => {
    const nested = zip([main, { name: "a/b", content: zeros(50e6) }]);
    const { id } = await rig.uploadZip(zip([main, { name: "a/nested.zip", content: nested, method: 0 }]));
    assert.equal(statSync(join(rig.contents.folderOf(id, 1), "nested.zip")).size, nested.length);
  });

  it("are limited as documented", () => {
    assert.deepEqual([skillLimits.maxFiles, skillLimits.maxUploadBytes], [500, 50 * 2 ** 20]);
  });
});
