// History file of the lines typed in `troupe run`.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { historyLimit, historyPath, LineHistory } from "../../../../cli/run/input/line-history.ts";

let folder = "";
before(() => {
  folder = mkdtempSync(join(tmpdir(), "troupe-history-"));
});
after(() => rmSync(folder, { recursive: true, force: true }));

describe("the history of typed lines", () => {
  it("is available in the next run, newest first, and readable only by its owner", () => {
    const path = join(folder, "new", "folder", "history");
    const first = new LineHistory(path);
    for (const line of ["one", "two", "two", " ", "three"]) first.add(line);
    assert.deepEqual(new LineHistory(path).lines, ["three", "two", "one"]);
    assert.equal(statSync(path).mode & 0o777, 0o600);
    assert.equal(statSync(join(folder, "new")).mode & 0o077, 0);
  });

  it("is truncated when it has grown to twice its limit", () => {
    const path = join(folder, "long");
    const lines = Array.from({ length: 2 * historyLimit + 1 }, (_, number) => `line ${number}`);
    writeFileSync(path, `${lines.join("\n")}\n`);
    const history = new LineHistory(path);
    assert.equal(history.lines.length, historyLimit);
    assert.equal(history.lines[0], lines.at(-1));
    assert.deepEqual(readFileSync(path, "utf8").trimEnd().split("\n"), lines.slice(-historyLimit));
    history.add("newest");
    assert.equal(history.lines.length, historyLimit);
  });

  it("does not store lines that no person types", () => {
    const path = join(folder, "huge");
    new LineHistory(path).add("x".repeat(100_000));
    assert.deepEqual(new LineHistory(path).lines, []);
  });

  it("works for this run if its file can be neither read nor written", () => {
    const history = new LineHistory(folder);
    history.add("one");
    assert.deepEqual(history.lines, ["one"]);
  });

  it("is in XDG_STATE_HOME if that is an absolute path, else below the home folder", () => {
    assert.equal(historyPath({ XDG_STATE_HOME: "/state" }), join("/state", "troupe", "run-history"));
    const usual = join(homedir(), ".local", "state", "troupe", "run-history");
    assert.equal(historyPath({ XDG_STATE_HOME: "relative" }), usual);
    assert.equal(historyPath({}), usual);
  });
});
