// Agent CLI functions: displayed text, the user's choice, session files and resumed conversations.
import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, rmSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "node:test";
import type { Skill } from "../../../../actors/api/agent/skills.ts";
import { choiceOf } from "../../../../cli/agent/approver.ts";
import { editedArguments } from "../../../../cli/agent/edit-call.ts";
import { resumedConversation } from "../../../../cli/agent/session/resumed-turns.ts";
import { SessionFiles } from "../../../../cli/agent/session/session-files.ts";
import { usableSkills } from "../../../../cli/agent/usable-skills.ts";
import { callLines, resultLines } from "../../../../cli/agent/view/tool-view.ts";
import { excerpt, visible, visibleLine } from "../../../../cli/agent/view/visible-text.ts";
import type { Questions } from "../../../../cli/run/input/questions.ts";

describe("visible text", () => {
  it("shows characters that a terminal would interpret or hide", () => {
    assert.equal(
      visible("a\r\nb\rc\x1b[31m\x9b\x07\u202e\u200b\u2066\ufeff"),
      "a\nb\\u{d}c\\u{1b}[31m\\u{9b}\\u{7}\\u{202e}\\u{200b}\\u{2066}\\u{feff}",
    );
    assert.equal(visible("ä 中 👍\t|\n"), "ä 中 👍\t|\n");
  });

  it("is cut in the middle and at the width", () => {
    assert.deepEqual(excerpt("1\n2\n3\n4\n5\n6\n", { head: 2, tail: 1, width: 9 }), [
      "1",
      "2",
      "… 3 more lines …",
      "6",
    ]);
    assert.deepEqual(excerpt("123456\n7", { head: 2, tail: 1, width: 4 }), ["123…", "7"]);
  });

  it("of a call says when it is incomplete", () => {
    assert.deepEqual(callLines("shell", { commands: ["a\nb", "c"] }), ["  $ a", "    b", "  $ c"]);
    assert.deepEqual(callLines("shell", "not json"), ["  not json"]);
    const long = callLines("code_execution", { code: "x\n".repeat(5000) });
    assert.ok(long.length < 1010);
    assert.match(long.at(-1) ?? "", /not the whole call/);
    assert.match(
      callLines("code_execution", { code: `ok${" ".repeat(30_000)}evil()` }).at(-1) ?? "",
      /not the whole call/,
    );
  });

  it("of a call hides no argument, whatever the tool calls its arguments", () => {
    assert.deepEqual(callLines("shell", { commands: ["a"], timeout_ms: 5 }), ["  $ a", '  with {"timeout_ms":5}']);
    const tricky = { code: "ls", host: "prod", sudo: true };
    for (const kind of ["external", "custom", "shell"]) {
      assert.match(callLines(kind, tricky).join("\n"), /"host": "prod",\n.*"sudo": true/);
    }
    assert.match(callLines("shell", { commands: [{ run: "rm" }] }).join(), /"run": "rm"/);
    assert.equal(visibleLine("a\nrun it?\t"), "a\\u{a}run it?\\u{9}");
  });

  it("of a result has the outputs and how it ended", () => {
    assert.deepEqual(resultLines({ stdout: "o\n", stderr: "e", exit_code: 3, status: "error" }, 80), [
      "  o",
      "  e",
      "  exit code 3",
    ]);
    assert.deepEqual(resultLines({ status: "timeout", stdout: "", exception: "X" }, 80), [
      "  X",
      "  ended: the time limit was reached",
    ]);
    assert.deepEqual(resultLines({ status: "cancelled" }, 80), ["  cancelled"]);
  });
});

describe("the choice of the user", () => {
  it("is taken from words and their first letters", () => {
    for (const line of ["y", "Y", " yes "]) assert.equal(choiceOf(line), "yes");
    assert.equal(choiceOf("always"), "always");
    assert.equal(choiceOf("e"), "edit");
    assert.deepEqual(choiceOf("n"), { message: null });
    assert.deepEqual(choiceOf("no  use ls "), { message: "Denied by the user: use ls" });
    for (const line of ["", "yep", "y really", "a few", "never"]) assert.equal(choiceOf(line), null, line);
  });
});

describe("editing a call without an editor", () => {
  const typed: string[] = [];
  const questions = {
    ask: async (_: string, text = "") => {
      typed.push(text);
      return "edited";
    },
  } as unknown as Questions;
  const edit = (kind: string, args: unknown) => editedArguments(kind, args, questions, {});

  it("replaces the command", async () => {
    assert.deepEqual(await edit("shell", { commands: ["ls"], timeout_ms: 5 }), { commands: ["edited"], timeout_ms: 5 });
    assert.deepEqual(typed, ["ls"]);
  });

  it("refuses what the line editor would execute", async () => {
    typed.length = 0;
    for (const command of ["ls\r/save! x", "ls\x1b]52;c;x\x07", "ls\ry", "a\nb", "a\u2028b", "a\tb", "a\u202eb"]) {
      await assert.rejects(edit("shell", { commands: [command] }), { code: "invalid_value", message: /EDITOR/ });
    }
    assert.deepEqual(typed, []);
  });
});

describe("usable skills", () => {
  const skill = (name: string, bytes = 1): Skill => ({
    id: `skill_${name}`,
    displayTitle: null,
    createdMs: 0,
    versions: [{ version: 1, name, description: "", createdMs: 0, bytes }],
  });

  it("are those that fit in one run, with different names", () => {
    const many = Array.from({ length: 34 }, (_, i) => skill(`s${i}`));
    const { used, leftOut } = usableSkills([skill("s0"), ...many, skill("huge", 2 ** 30)]);
    assert.equal(used.length, 32);
    assert.deepEqual(leftOut, ["s0", "s32", "s33", "huge"]);
  });
});

describe("session files", () => {
  let folder = "";
  beforeEach(() => {
    folder = join(mkdtempSync(join(tmpdir(), "troupe-sessions-")), "agent-sessions");
  });
  afterEach(() => rmSync(join(folder, ".."), { recursive: true, force: true }));
  const session = { version: 1, turns: 1, messages: [], images: [], videos: [], files: [] } as const;
  const saved = (id: string, of = "/work/a") => ({
    id,
    folder: of,
    session: { ...session, messages: [], images: [], videos: [], files: [] },
  });

  it("are found by id and by folder, the newest first, and are the user's alone", async () => {
    const files = new SessionFiles(folder);
    await files.save(saved("one"));
    const [name = ""] = readdirSync(folder);
    assert.equal(statSync(join(folder, name)).mode & 0o777, 0o600);
    utimesSync(join(folder, name), 1, 1);
    await files.save(saved("two"));
    await files.save(saved("three", "/work/b"));
    assert.equal((await files.last("/work/a")).id, "two");
    assert.equal((await files.named("one", "/work/a")).id, "one");
    await assert.rejects(files.named("one", "/work/b"), /works in \/work\/a, not in \/work\/b/);
    await assert.rejects(files.named("ne", "/work/a"), /no session has the id "ne"/);
    await assert.rejects(files.last("/work/c"), /no session of the folder/);
    writeFileSync(join(folder, name), "{");
    await assert.rejects(files.named("one", "/work/a"), { code: "invalid_value", message: /cannot be read/ });
  });

  it("are at most 128; the oldest ones are removed", async () => {
    const files = new SessionFiles(folder);
    for (let i = 0; i < 130; i++) await files.save(saved(`s${i}`));
    assert.equal(readdirSync(folder).length, 128);
  });

  it("are not kept without a folder for state", async () => {
    const files = new SessionFiles(null);
    await files.save(saved("one"));
    await assert.rejects(files.last("/work/a"), /no session/);
  });
});

describe("a resumed conversation", () => {
  const message = (role: string, content: string, visible: number) => ({ message: { role, content }, visible });

  it("has the texts of all rounds of an answer, without the results of tools", () => {
    const messages = [
      message("system", "s", 0),
      message("user", "q1", 1),
      message("assistant", "a ", 2),
      message("tool", "result", 2),
      message("assistant", "b", 2),
      message("user", "q2", 3),
      message("assistant", "unfinished", 4),
      message("tool", "r", 4),
    ];
    assert.deepEqual(resumedConversation({ messages, digests: ["0", "1", "2", "3"] }), {
      system: "s",
      turns: [
        { question: "q1", answer: "a b", isCut: false },
        { question: "q2", answer: "[The user interrupted this answer.]", isCut: true },
      ],
    });
  });
});
