import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { it } from "node:test";
import { byTroupe, writeReadme } from "../../../../cli/commands/readme.ts";

it("the README of a folder of quantized models replaces an earlier one, and none of the user", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "readme-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const path = join(folder, "README.md");
  const warnings: string[] = [];
  const write = async (text: string) => {
    await writeReadme(folder, [text], (message) => warnings.push(message));
    return readFileSync(path, "utf8");
  };
  for (const text of [`one, made ${byTroupe} 1`, `two, made ${byTroupe} 2`]) assert.equal(await write(text), text);
  assert.deepEqual(warnings, []);
  writeFileSync(path, "# My project");
  assert.equal(await write(`three, made ${byTroupe} 3`), "# My project");
  assert.deepEqual(warnings, [`${path} is kept, because troupe has not written it; --no-readme leaves it out`]);
});
