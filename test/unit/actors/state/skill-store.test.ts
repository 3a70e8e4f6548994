import assert from "node:assert/strict";
import {
  createWriteStream,
  existsSync,
  mkdirSync,
  readFileSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, describe, it } from "node:test";
import { skillLimits } from "../../../../actors/api/agent/skills.ts";
import { openArchive } from "../../../../actors/files/skills/read-archive.ts";
import { copySkill } from "../../../../actors/files/skills/skill-folder.ts";
import { executable, skillText, zip } from "../../../fixtures/skills/zip-builder.ts";
import { SkillRig } from "./skill-rig.ts";

const rigs: SkillRig[] = [];
afterEach(() => {
  for (const rig of rigs.splice(0)) rig.dispose();
});

async function open(hasFolder = false): Promise<SkillRig> {
  const rig = await SkillRig.open(hasFolder);
  rigs.push(rig);
  return rig;
}

describe("skill store", () => {
  it("takes the files of a folder by their paths", async () => {
    const rig = await open();
    const skill = await rig.upload({ "top/SKILL.md": skillText("one"), "top/a/b.txt": "text" }, null, "One");
    assert.match(skill.id, /^skill_[0-9a-f]{32}$/);
    assert.deepEqual(
      [skill.displayTitle, skill.versions.map(({ version, name }) => [version, name])],
      ["One", [[1, "one"]]],
    );
    assert.equal(readFileSync(join(rig.contents.folderOf(skill.id, 1), "a", "b.txt"), "utf8"), "text");
    assert.deepEqual(rig.onDisk(), { content: [`${skill.id}_v1`], staging: [] });
  });

  const paths = [
    "../evil",
    "/etc/x",
    "top/../../evil",
    "top/CON",
    "top\\evil",
    "other/file",
    "top/SKILL.md/x",
    "top/skill.MD",
  ];
  for (const path of paths) {
    it(`refuses the path ${JSON.stringify(path)} and leaves no file`, async () => {
      const rig = await open();
      const files = { "top/SKILL.md": skillText("one"), [path]: "x" };
      await assert.rejects(rig.upload(files), { code: "invalid_value", param: "files" });
      assert.deepEqual(rig.onDisk(), { content: [], staging: [] });
    });
  }

  it("refuses too many files, and no files", async () => {
    const rig = await open();
    const names = Array.from({ length: skillLimits.maxFiles }, (_, i) => [`top/${i}`, "x"]);
    await assert.rejects(
      rig.upload({ "top/SKILL.md": skillText("one"), ...Object.fromEntries(names) }),
      /at most 500 files/,
    );
    await assert.rejects(rig.upload({}), /got no file/);
  });

  it("counts versions up, never uses a number twice, and finds the latest", async () => {
    const rig = await open();
    const { id } = await rig.upload({ "SKILL.md": skillText("one", "first") });
    await Promise.all([1, 2, 3].map((i) => rig.upload({ "SKILL.md": skillText("one", `next ${i}`) }, id)));
    const numbers = async () => (await rig.store.find(id))?.versions.map(({ version }) => version);
    assert.deepEqual(await numbers(), [1, 2, 3, 4]);
    assert.equal(await rig.store.deleteVersion({ id, version: 4 }), true);
    assert.equal(await rig.store.deleteVersion({ id, version: 4 }), false);
    assert.equal((await rig.store.content({ id, version: null }))?.version, 3);
    await rig.upload({ "SKILL.md": skillText("two") }, id);
    assert.deepEqual(await numbers(), [1, 2, 3, 5]);
    assert.equal((await rig.store.content({ id, version: null }))?.name, "two");
    assert.equal((await rig.store.content({ id, version: 1 }))?.description, "first");
    assert.equal(await rig.store.content({ id, version: 4 }), null);
    for (const version of [1, 2, 3]) await rig.store.deleteVersion({ id, version });
    await assert.rejects(rig.store.deleteVersion({ id, version: 5 }), { code: "conflict" });
  });

  it("passes over a number whose content a killed server left behind", async () => {
    const rig = await open();
    const { id } = await rig.upload({ "SKILL.md": skillText("one") });
    mkdirSync(rig.contents.folderOf(id, 2));
    writeFileSync(join(rig.contents.folderOf(id, 2), "SKILL.md"), skillText("left"));
    const { versions } = await rig.upload({ "SKILL.md": skillText("two") }, id);
    assert.deepEqual(
      versions.map(({ version, name }) => [version, name]),
      [
        [1, "one"],
        [3, "two"],
      ],
    );
    assert.deepEqual(rig.onDisk().staging, []);
  });

  it("deletes a skill with all its files", async () => {
    const rig = await open();
    const { id } = await rig.upload({ "SKILL.md": skillText("one") });
    await rig.upload({ "SKILL.md": skillText("one") }, id);
    assert.equal(await rig.store.delete(id), true);
    assert.equal(await rig.store.delete(id), false);
    assert.deepEqual([await rig.store.find(id), await rig.store.list()], [null, []]);
    assert.deepEqual(rig.onDisk(), { content: [], staging: [] });
    await assert.rejects(rig.upload({ "SKILL.md": skillText("one") }, id), { code: "skill_not_found" });
  });

  it("refuses skills above its number, and none is lost", async () => {
    const rig = await open();
    for (let i = 0; i < skillLimits.maxSkills; i++) await rig.upload({ "SKILL.md": skillText(`s${i}`) });
    await assert.rejects(rig.upload({ "SKILL.md": skillText("more") }), {
      code: "conflict",
      message: /at most 256 skills/,
    });
    assert.equal((await rig.store.list()).length, skillLimits.maxSkills);
    assert.deepEqual(rig.onDisk().staging, []);
  });

  it("packs a version as an archive that it would accept", async () => {
    const rig = await open();
    const archive = zip([
      { name: "x/SKILL.md", content: skillText("one") },
      { name: "x/run.sh", content: "echo", mode: executable },
    ]);
    const { id } = await rig.uploadZip(archive);
    const packed = await rig.store.pack({ id, version: null, client: "c" });
    assert.equal(packed?.name, "one");
    const path = join(rig.contents.stagingFolder, packed.staged);
    const opened = await openArchive(path);
    assert.deepEqual(
      opened.entries.map(({ path: name, isExecutable }) => [name, isExecutable]),
      [
        ["one/SKILL.md", false],
        ["one/run.sh", true],
      ],
    );
    opened.close();
    const again = await rig.uploadZip(readFileSync(path));
    assert.equal(again.versions[0]?.name, "one");
    await rm(path);
    assert.equal(await rig.store.pack({ id, version: 9, client: "c" }), null);
  });

  it("removes abandoned uploads and contents without metadata, and no others", async () => {
    const rig = await open();
    const { id } = await rig.upload({ "SKILL.md": skillText("one") });
    writeFileSync(join(rig.contents.stagingFolder, "form-abandoned"), "x");
    createWriteStream(join(rig.root, "skills", "content", "skill_0_v1")).end();
    await rig.store.sweep();
    assert.equal(rig.onDisk().staging.length, 1, "it may still be in use");
    rig.now += 2 * 3_600_000;
    await rig.store.sweep();
    assert.deepEqual(rig.onDisk(), { content: [`${id}_v1`], staging: [] });
  });
});

describe("skills of a folder", () => {
  it("show changes at once, with an id that depends on the folder's name", async () => {
    const rig = await open(true);
    assert.deepEqual(await rig.store.list(), []);
    const path = rig.write("one/SKILL.md", skillText("one", "first"));
    const [skill] = await rig.store.list();
    assert.ok(skill !== undefined);
    const first = await rig.store.content({ id: skill.id, version: null });
    rig.write("one/SKILL.md", skillText("one", "other"));
    const second = await rig.store.content({ id: skill.id, version: 1 });
    assert.equal(second?.description, "other");
    assert.notEqual(first?.state, second?.state);
    assert.equal(second?.folder, join(rig.root, "own", "one"));
    await rm(path);
    assert.deepEqual([await rig.store.list(), await rig.store.find(skill.id)], [[], null]);
  });

  it("are listed with the uploaded ones, the newest first, and cannot be changed by requests", async () => {
    const rig = await open(true);
    utimesSync(rig.write("old/SKILL.md", skillText("old")), 1000, 1000);
    const uploaded = await rig.upload({ "SKILL.md": skillText("new") });
    const [first, second] = await rig.store.list();
    assert.deepEqual([first?.id, second?.versions[0]?.name], [uploaded.id, "old"]);
    const id = second?.id ?? "";
    await assert.rejects(rig.store.delete(id), { code: "unsupported" });
    await assert.rejects(rig.store.deleteVersion({ id, version: 1 }), { code: "unsupported" });
    await assert.rejects(rig.upload({ "SKILL.md": skillText("old") }, id), { code: "unsupported" });
    assert.ok(existsSync(join(rig.root, "own", "old", "SKILL.md")));
  });

  it("may have names in any Unicode form, as some systems write them", async () => {
    const rig = await open(true);
    const decomposed = "e\u0301te\u0301";
    rig.write("own/SKILL.md", skillText("own"));
    rig.write(`own/${decomposed}/${decomposed}.txt`, "text");
    const [skill] = await rig.store.list();
    assert.ok(skill !== undefined, JSON.stringify(rig.warnings));
    const content = await rig.store.content({ id: skill.id, version: null });
    const packed = await rig.store.pack({ id: skill.id, version: null, client: "c" });
    assert.ok(content !== null && packed !== null);
    const copy = join(rig.root, "copy");
    await copySkill(content.folder, copy);
    const name = decomposed.normalize("NFC");
    assert.equal(readFileSync(join(copy, name, `${name}.txt`), "utf8"), "text");
    assert.deepEqual(rig.warnings, []);
  });

  it("are left out with one warning if they cannot be used", async () => {
    const rig = await open(true);
    rig.write("good/SKILL.md", skillText("good"));
    rig.write("bad/SKILL.md", "no front matter");
    rig.write("linked/SKILL.md", skillText("linked"));
    symlinkSync("/etc/passwd", join(rig.root, "own", "linked", "secret"));
    rig.write("not-a-skill/README.md", "x");
    for (let i = 0; i < 3; i++) assert.equal((await rig.store.list()).length, 1);
    assert.deepEqual(rig.warnings.map(([fields]) => (fields as { folder: string }).folder).sort(), ["bad", "linked"]);
    rig.write("bad/SKILL.md", skillText("bad"));
    assert.equal((await rig.store.list()).length, 2);
  });
});
