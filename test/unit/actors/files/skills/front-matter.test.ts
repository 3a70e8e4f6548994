import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { frontMatterOf } from "../../../../../actors/files/skills/front-matter.ts";
import { arrangedFiles, checkedPath, type SkillEntry } from "../../../../../actors/files/skills/skill-entries.ts";
import { skillText } from "../../../../fixtures/skills/zip-builder.ts";

const read = (text: string) => frontMatterOf(Buffer.from(text));
const refused = (text: string, message: RegExp) =>
  assert.throws(() => read(text), { code: "invalid_value", param: "files", message });

describe("front matter of a skill", () => {
  it("is read in all forms of YAML", () => {
    const expected = { name: "my-skill", description: "Does: a thing." };
    assert.deepEqual(read('---\nname: my-skill\ndescription: "Does: a thing."\n---\n# Title'), expected);
    assert.deepEqual(read("---\r\nname: 'my-skill'\r\ndescription: >\r\n  Does:\r\n  a thing.\r\n---\r\n"), expected);
    assert.deepEqual(read('\ufeff---\n{"name": "my-skill", "description": "Does: a thing."}\n---'), expected);
    assert.deepEqual(read("---\nname: my-skill\nlicense: MIT\ndescription: 'Does: a thing.'\n---\n"), expected);
  });

  it("is refused by the line of the mistake", () => {
    refused("---\nname: a\ndescription: one: two\n---\n", /line 3/);
    refused("---\nname: a\nname: b\ndescription: x\n---\n", /line 3/);
    refused("---\nname: [\n---\n", /YAML/);
  });

  it("needs a name of the specification", () => {
    for (const name of ["My-Skill", "a_b", "-a", "a-", "a--b", "a b", "../a", "a/b", "x".repeat(65), "é", "''", "[]"]) {
      refused(skillText(name), /expected name in the front matter/);
    }
    refused("---\ndescription: x\n---\n", /expected name .* got none/);
    refused("---\nname: 12\ndescription: x\n---\n", /expected name .* got 12/);
  });

  it("needs a description of at most 1024 characters", () => {
    assert.equal(read(skillText("a", "é".repeat(1024))).description.length, 1024);
    refused(skillText("a", "x".repeat(1025)), /got 1025 characters/);
    refused("---\nname: a\ndescription:\n---\n", /expected description/);
    refused("---\nname: a\ndescription: {a: b}\n---\n", /expected description/);
  });

  it("is refused if it is missing, too long or not text", () => {
    refused("# No front matter", /begin with front matter/);
    refused("---\nname: a\ndescription: b\n", /begin with front matter/);
    refused(`---\nname: a\n${"# comment\n".repeat(2000)}---\n`, /begin with front matter|expected/);
    assert.throws(() => frontMatterOf(Buffer.from([0xff, 0xfe, 0])), /UTF-8/);
    refused("---\n- a\n- b\n---\n", /expected keys and values/);
    refused("---\njust text\n---\n", /expected keys and values/);
  });

  it("runs no code, resolves no tags, and stops aliases that multiply", () => {
    refused('---js\n{ name: "a", description: process.exit() }\n---\n', /begin with front matter/);
    refused("---\nname: !!js/function 'function () {}'\ndescription: b\n---\n", /name|tag/i);
    const bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n".concat(
      ..."bcdefghi".split("").map((key, i) => `${key}: &${key} [${`*${"abcdefgh"[i]},`.repeat(9)}]\n`),
    );
    const startedAt = performance.now();
    refused(`---\nname: a\ndescription: b\n${bomb}---\n`, /alias/i);
    refused(`---\nname: a\ndescription: ${"[".repeat(15_000)}\n---\n`, /YAML/);
    refused(`---\nname: a\ndescription: ${"- ".repeat(7000)}\n---\n`, /YAML|description/);
    refused(`---\nname: a\n${"? ".repeat(7000)}\n---\n`, /YAML|description/);
    assert.ok(performance.now() - startedAt < 2000, `${performance.now() - startedAt} ms`);
    refused("---\n__proto__: {name: a, description: b}\n---\n", /expected name/);
  });

  it("never fails in another way, whatever the text is", () => {
    const line = fc.oneof(
      fc.constantFrom(
        "---",
        "name: a",
        "description: b",
        "? ",
        "- - -",
        "&a *a",
        "!!binary x",
        "|",
        "{",
        "[",
        "'",
        '"',
      ),
      fc.string({ unit: "binary", maxLength: 30 }),
    );
    fc.assert(
      fc.property(fc.array(line, { maxLength: 12 }), (lines) => {
        try {
          const { name, description } = read(["---", ...lines].join("\n"));
          assert.match(name, /^[a-z0-9-]{1,64}$/);
          assert.ok(description.length > 0);
        } catch (error) {
          assert.equal((error as { code?: string }).code, "invalid_value", String(error));
        }
      }),
      { numRuns: 2000 },
    );
  });
});

describe("paths of a skill", () => {
  const entry = (path: string): SkillEntry => ({
    path,
    isFolder: false,
    bytes: 1,
    isExecutable: false,
    read: () => assert.fail("nothing is read"),
  });

  it("stay within their folder, whatever the names are", () => {
    const part = fc.oneof(
      fc.constantFrom("..", ".", "", "a", "A", "CON", "a.", " a", "C:", "\\", "SKILL.md", "\u0000", "x".repeat(300)),
      fc.string({ unit: "binary", maxLength: 8 }),
    );
    fc.assert(
      fc.property(fc.array(fc.array(part, { minLength: 1, maxLength: 4 }), { maxLength: 6 }), (paths) => {
        let files: readonly SkillEntry[];
        try {
          files = arrangedFiles(
            ["s/SKILL.md", ...paths.map((parts) => parts.join("/"))].map((path) => entry(checkedPath(path))),
          );
        } catch (error) {
          assert.equal((error as { code?: string }).code, "invalid_value", String(error));
          return;
        }
        const written = files.map(({ path }) => path.toLowerCase());
        assert.equal(new Set(written).size, written.length);
        for (const { path } of files) {
          assert.doesNotMatch(path, /^\/|\\|\0|(?:^|\/)\.{0,2}(?:\/|$)/);
        }
      }),
      { numRuns: 2000 },
    );
  });
});
