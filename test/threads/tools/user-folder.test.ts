// Tools in a folder of the user: the tools process itself never removes, replaces or renames a file in this folder.
import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "node:test";
import { ToolsRig } from "./rig.ts";

for (const mode of ["on", "off"] as const) {
  describe(`tools in a folder of the user, sandbox ${mode}`, () => {
    let rig: ToolsRig;
    let base = "";
    let folder = "";
    beforeEach(async () => {
      base = mkdtempSync(join(tmpdir(), "troupe-user-folder-"));
      folder = join(base, "project");
      mkdirSync(join(folder, "data.csv"), { recursive: true });
      writeFileSync(join(folder, "mine.txt"), "mine");
      rig = new ToolsRig({ userFolder: folder, mode });
      await rig.client.start();
    });
    afterEach(async () => {
      await rig.stop();
      rig.dispose();
      rmSync(base, { recursive: true, force: true });
    });

    it("share it among sessions, and leave it when sessions and the thread end", async () => {
      assert.equal((await rig.python("open('made.txt', 'w').write('x')")).status, "success");
      assert.match(
        String((await rig.shell(["ls; echo > $HOME/at-home"], "other")).model.stdout),
        /made\.txt\nmine\.txt/,
      );
      for (const session of ["s", "other"]) await rig.client.closeSession({ session });
      await rig.stop();
      assert.deepEqual(readdirSync(folder).sort(), ["data.csv", "made.txt", "mine.txt"]);
      assert.deepEqual(readdirSync(base), ["project"], "nothing is put beside it");
      assert.deepEqual(readdirSync(rig.workFolder), [], "the private folders are removed");
    });

    it("get no files attached, which could replace the user's", async () => {
      const file = join(base, "attached");
      writeFileSync(file, "other");
      for (const name of ["mine.txt", "data.csv", "new.txt"]) {
        await assert.rejects(rig.client.mount({ session: "s", files: [{ name, path: file }] }), {
          code: "unsupported",
        });
      }
      assert.equal(readFileSync(join(folder, "mine.txt"), "utf8"), "mine");
      assert.deepEqual(readdirSync(folder).sort(), ["data.csv", "mine.txt"]);
    });

    it("surface only files that a call names", async () => {
      const quiet = await rig.shell(["echo x > quiet.txt"]);
      assert.deepEqual(quiet.files, []);
      const named = await rig.shell(["echo x > named.txt"], "s", { outputs: [{ name: "named.txt" }] });
      assert.deepEqual(
        named.files.map(({ name }) => name),
        ["named.txt"],
      );
      assert.ok(existsSync(join(folder, "named.txt")));
    });
  });
}
