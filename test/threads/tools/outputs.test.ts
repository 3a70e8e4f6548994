import assert from "node:assert/strict";
import { readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { ToolsRig } from "./rig.ts";

describe("files that tools create", () => {
  const rig = new ToolsRig({ shellTimeoutMs: 20_000 });
  const { shell, run } = rig;

  before(() => rig.client.start());
  after(async () => {
    await rig.stop();
    rig.dispose();
  });

  it("surfaces files that a call creates or changes, those that it names, and says which are missing", async () => {
    const { files } = await shell(
      ["mkdir -p out; echo 1 > out/new.csv; echo 2 > b.txt; touch .hidden; ln -s /etc/passwd link; mkfifo pipe"],
      "files",
      { outputs: [{ name: "missing.png", format: "png" }] },
    );
    assert.deepEqual(
      files.map(({ name, failure }) => [name, failure?.code ?? null]),
      [
        ["missing.png", "not_produced"],
        ["b.txt", null],
        ["out/new.csv", null],
      ],
    );
    assert.equal(readFileSync(join(rig.stagingFolder, files[1]!.staged!), "utf8"), "2\n");
    const again = await shell(["echo 3 >> b.txt"], "files");
    assert.deepEqual(
      again.files.map(({ name }) => name),
      ["b.txt"],
    );
    const surfaced = await run(
      "surface_outputs",
      { outputs: [{ name: "out/new.csv" }, { name: "/work/b.txt" }] },
      "files",
    );
    assert.deepEqual(
      surfaced.files.map(({ name, failure }) => [name, failure]),
      [
        ["out/new.csv", null],
        ["b.txt", null],
      ],
    );
    const expect = async (command: string, inRun: string) => {
      const given = { expected: [{ name: "b.txt", format: "txt" }], run: inRun };
      const { files: found } = await run("shell", { commands: [command] }, "files", given);
      return found.map(({ name, format }) => [name, format]);
    };
    assert.deepEqual(await expect("true", "other run"), [["b.txt", "txt"]], "a file of an earlier run");
    assert.deepEqual(await expect("true", "other run"), [], "once for each state");
    assert.deepEqual(await expect("echo 4 >> b.txt", "other run"), [["b.txt", "txt"]]);
  });

  it("follows no link out of the work folder, whatever is named", async () => {
    await shell(
      ["ln -s /etc linked; ln -s /etc/hostname h; ln b.txt hard 2>/dev/null; echo x > b2.txt; ln b2.txt hard2"],
      "links",
    );
    const names = ["linked/hostname", "h", "../../etc/passwd", "/etc/passwd", "hard2", "nul", "."];
    const { files } = await run("surface_outputs", { outputs: names.map((name) => ({ name })) }, "links");
    assert.equal(files.length, names.length);
    for (const { failure, staged, name } of files) assert.ok(failure !== null && staged === null, name);
  });

  it("surfaces at most 64 files of a call and says how many there are", async () => {
    const { files, model } = await shell(["for i in $(seq 100); do echo $i > f$i.txt; done"], "many");
    assert.equal(files.length, 64);
    assert.match(String(model.note_on_files), /^36 more/);
  });

  it("mounts files, which are no outputs until they change", async () => {
    const path = join(rig.base, "input.csv");
    writeFileSync(path, "a,b\n");
    await rig.client.mount({ session: "mounted", files: [{ name: "data.csv", path }] });
    const { model, files } = await shell(["cat data.csv; ls"], "mounted");
    assert.equal(model.stdout, "a,b\ndata.csv\n");
    assert.deepEqual(files, []);
    const changed = await shell(["echo 1,2 >> data.csv"], "mounted");
    assert.deepEqual(
      changed.files.map(({ name }) => name),
      ["data.csv"],
    );
    await shell(["rm data.csv; mkdir data.csv; touch data.csv/x"], "mounted");
    await rig.client.mount({ session: "mounted", files: [{ name: "data.csv", path }] });
    assert.equal((await shell(["cat data.csv; ls .replaced-*"], "mounted")).model.stdout, "a,b\nx\n");
    await assert.rejects(rig.client.mount({ session: "mounted", files: [{ name: "../x", path }] }), {
      code: "invalid_value",
    });
  });

  it("surfaces a file once although two calls see its change", async () => {
    const both = await Promise.all([
      shell(["sleep 0.1; echo x > twice.txt; sleep 0.3"], "parallel"),
      shell(["sleep 0.4"], "parallel"),
    ]);
    assert.deepEqual(
      both.flatMap(({ files }) => files.map(({ name }) => name)),
      ["twice.txt"],
    );
  });

  it("finds names in another normalisation form, and says which names cannot be used", async () => {
    const { files, model } = await shell(
      ["printf x > \"$(printf 'e\\314\\201.txt')\"; echo > 'a:b.txt'; echo > ok.txt"],
      "names",
    );
    assert.deepEqual(
      files.map(({ name, failure }) => [name, failure]),
      [
        ["\u00e9.txt", null],
        ["ok.txt", null],
      ],
    );
    assert.match(String(model.note_on_files), /cannot be surfaced: "a:b.txt"/);
  });

  it("refuses a file that is too large, and says it when nobody named it", async () => {
    const { files, model } = await shell(["truncate -s 70M big.bin"], "large");
    assert.deepEqual(files, []);
    assert.match(String(model.note_on_files), /big.bin has 73400320 bytes/);
    const named = await run("surface_outputs", { outputs: [{ name: "big.bin" }] }, "large");
    assert.deepEqual(
      named.files.map(({ failure }) => failure?.code),
      ["too_large"],
    );
    assert.deepEqual(
      readdirSync(rig.stagingFolder).filter((name) => statSync(join(rig.stagingFolder, name)).size > 1e6),
      [],
      "no copy is left",
    );
  });

  it("leaves no copy of the files of a cancelled call", async () => {
    const staged = () => readdirSync(rig.stagingFolder).length;
    const before = staged();
    const commands = ["for i in $(seq 60); do head -c 4000000 /dev/zero > f$i.bin; done"];
    const call = run("shell", { commands }, "cancelled", { id: "cancelled" });
    while (staged() < before + 3) await sleep(1);
    rig.client.cancel({ id: "cancelled" });
    assert.equal((await call).status, "cancelled");
    for (let i = 0; i < 200 && staged() > before; i++) await sleep(10);
    assert.equal(staged(), before);
  });

  it("keeps the result of a call whose files cannot be stored", async () => {
    const lost = new ToolsRig();
    await lost.client.start();
    rmSync(lost.stagingFolder, { recursive: true });
    const { files, model } = await lost.python("open('x.txt', 'w').write('x')\n42");
    assert.equal(model.result, "42");
    assert.deepEqual(files, []);
    assert.match(String(model.note_on_files), /x.txt could not be stored/);
    await lost.stop();
    lost.dispose();
  });

  it("checks at most 16384 files for changes, and then wants names", async () => {
    const { files, model } = await shell(["mkdir d; cd d; seq 17000 | xargs touch; cd ..; echo a > a.txt"], "crowd", {
      outputs: [{ name: "a.txt" }],
    });
    assert.deepEqual(
      files.map(({ name }) => name),
      ["a.txt"],
    );
    assert.match(String(model.note_on_files), /more than 16384 files/);
  });
});
