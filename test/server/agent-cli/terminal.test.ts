// `troupe agent` on a real pseudo-terminal: approvals, edits, interrupts and the displayed text.
import assert from "node:assert/strict";
import { chmodSync, existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { python, runs, shell, User } from "./rig.ts";

const question = /run it\?.*why: /s;

let user: User;
beforeEach(() => {
  user = new User();
});
afterEach(() => user.leave());

describe("a call on a terminal", () => {
  it("is shown, runs when it is approved, and its changes are shown as a diff", async () => {
    user.write("notes.txt", "one\ntwo\nthree\n");
    user.script({ text: "I add a line.", calls: [shell("echo four >> notes.txt; echo said")] }, "Added.");
    const terminal = user.terminal(["agent", "add a line"]);
    assert.match(await terminal.sees(question), /I add a line\.\s+Shell\s+\$ echo four >> notes\.txt; echo said/);
    assert.equal(user.read("notes.txt"), "one\ntwo\nthree\n", "nothing runs before the answer");
    terminal.type("y\r");
    const shown = await terminal.sees(/Added\./);
    assert.match(shown, /said\s+exit code 0\s+changed notes\.txt\s+@@ line 2 @@\s+two\s+three\s+\+four/);
    assert.equal(await terminal.ended, 0);
    assert.equal(user.read("notes.txt"), "one\ntwo\nthree\nfour\n");
  });

  it("that is denied does not run, and the model reads why", async () => {
    user.script({ calls: [shell("touch made")] }, "Well.");
    const terminal = user.terminal(["agent", "go"]);
    await terminal.sees(question);
    terminal.type("what\r");
    await terminal.sees(/expected y, n.*why: /s);
    terminal.type("n use another name\r");
    await terminal.sees(/Well\./);
    assert.equal(await terminal.ended, 0);
    assert.equal(user.lastSeen(), "Denied by the user: use another name");
    assert.equal(existsSync(join(user.folder, "made")), false);
  });

  it("runs, as do all later calls, after the key a", async () => {
    const calls = [shell("touch one"), shell("touch two")];
    user.script({ calls }, { calls: [python("open('three', 'w').close()")] }, "Made.");
    const terminal = user.terminal(["agent", "go"]);
    await terminal.sees(question);
    terminal.type("a\r");
    const shown = await terminal.sees(/Made\./);
    assert.doesNotMatch(shown, /run it\?/);
    assert.match(shown, /open\('three', 'w'\)/, "calls that are not asked for are shown too");
    assert.equal(await terminal.ended, 0);
    assert.deepEqual(readdirSync(user.folder).sort(), ["one", "three", "two"]);
  });

  it("runs as edited in the user's editor, and the model reads that", async () => {
    const editor = join(user.base, "editor.sh");
    writeFileSync(editor, '#!/bin/sh\nsed -i "s/first/second/" "$2"\n');
    chmodSync(editor, 0o700);
    user.script({ calls: [python("name = 'first'\nopen(name, 'w').close()")] }, "Made.");
    const environment = { VISUAL: `${editor} --wait`, EDITOR: "false" };
    const terminal = user.terminal(["agent", "go"], { environment });
    await terminal.sees(question);
    terminal.type("e\r");
    assert.match(await terminal.sees(question), /name = 'second'/);
    terminal.type("y\r");
    await terminal.sees(/Made\./);
    assert.equal(await terminal.ended, 0);
    assert.deepEqual(readdirSync(user.folder), ["second"]);
    assert.match(user.lastSeen(), /^The user edited this call.*second.*Its result: \{"status":"success"/s);
  });

  it("is edited on the line without an editor", async () => {
    user.script({ calls: [shell("touch first")] }, "Made.");
    const terminal = user.terminal(["agent", "go"]);
    await terminal.sees(question);
    terminal.type("e\r");
    await terminal.sees(/edit: touch first/);
    terminal.type("\x7f\x7f\x7f\x7f\x7flast\r");
    await terminal.sees(question);
    terminal.type("y\r");
    await terminal.sees(/Made\./);
    assert.equal(await terminal.ended, 0);
    assert.deepEqual(readdirSync(user.folder), ["last"]);
  });

  it("is not approved by keys that were typed before the question", async () => {
    user.script({ calls: [shell("sleep 1; touch one")] }, { calls: [shell("touch two")] }, "end");
    const terminal = user.terminal(["agent", "go"]);
    await terminal.sees(question);
    terminal.type("y\r");
    await sleep(300);
    terminal.type("y\r");
    await terminal.sees(/touch two.*why: /s);
    await sleep(300);
    assert.equal(existsSync(join(user.folder, "two")), false);
    terminal.type("n\r");
    assert.equal(await terminal.ended, 0);
  });
});

describe("an interrupt", () => {
  it("ends a tool with its processes, and the command with exit code 130", async () => {
    user.script({ calls: [shell("touch begun; sleep 1987.25; touch ended")] }, "unused");
    const terminal = user.terminal(["agent", "--yes", "go"]);
    while (!existsSync(join(user.folder, "begun"))) await sleep(20);
    assert.equal(runs("sleep 1987.25"), true);
    terminal.type("\x03");
    assert.equal(await terminal.ended, 130);
    assert.equal(runs("sleep 1987.25"), false);
    assert.deepEqual(readdirSync(user.folder), ["begun"]);
  });

  it("at a question runs nothing", async () => {
    user.script({ calls: [shell("touch made")] }, "unused");
    const terminal = user.terminal(["agent", "go"]);
    await terminal.sees(question);
    terminal.type("\x03");
    assert.equal(await terminal.ended, 130);
    assert.deepEqual(readdirSync(user.folder), []);
    assert.ok(
      terminal.raw.endsWith("\x1b[?2004l") || terminal.raw.includes("\x1b[?2004l"),
      "pastes are not marked any more",
    );
  });

  it("while a call is edited runs nothing", async () => {
    user.script({ calls: [shell("touch made")] }, "unused");
    const terminal = user.terminal(["run", "--agent"]);
    await terminal.sees(/> $/);
    terminal.type("go\r");
    await terminal.sees(question);
    terminal.type("e\r");
    await terminal.sees(/edit: touch made/);
    terminal.type("\x03");
    assert.doesNotMatch(await terminal.sees(/stopped here.*> $/s), /run it\?/);
    terminal.type("\x04");
    assert.equal(await terminal.ended, 0);
    assert.deepEqual(readdirSync(user.folder), []);
  });

  it("by another signal ends the question too", async () => {
    user.script({ calls: [shell("touch made")] }, "unused");
    const terminal = user.terminal(["agent", "go"]);
    await terminal.sees(question);
    process.kill(terminal.pid, "SIGTERM");
    assert.equal(await terminal.ended, 143);
    assert.deepEqual(readdirSync(user.folder), []);
  });

  it("in a chat keeps the conversation, and the next turn continues", async () => {
    user.script(
      { text: "first ", calls: [python("x = 41")] },
      { slow: Array.from({ length: 500 }, (_, i) => `word${i} `) },
      { calls: [python("print(x + 1)")] },
      "It is there.",
    );
    const terminal = user.terminal(["run", "--agent", "--yes"]);
    await terminal.sees(/tools work in .*> /s);
    terminal.type("begin\r");
    await terminal.sees(/word5 /);
    terminal.type("\x03");
    await terminal.sees(/stopped here.*> /s);
    terminal.type("continue\r");
    assert.match(await terminal.sees(/It is there\..*> /s), /42/, "the variables of Python are kept");
    const { messages } = user.seen().at(-2)!;
    assert.deepEqual(
      messages.map(({ role }) => role),
      ["system", "user", "assistant", "tool", "assistant", "user"],
    );
    assert.match(messages[4]!.content, /^word0 word1.*\n\[The user interrupted this answer\.\]$/s);
    terminal.type("\x03");
    await terminal.sees(/ctrl-c again/);
    terminal.type("\x03");
    assert.equal(await terminal.ended, 0);
  });

  it("in a chat ends a running tool", async () => {
    user.script({ calls: [shell("touch begun; sleep 1988.25")] }, "unused", "hello again");
    const terminal = user.terminal(["run", "--agent"]);
    await terminal.sees(/> $/);
    terminal.type("begin\r");
    await terminal.sees(question);
    terminal.type("y\r");
    while (!existsSync(join(user.folder, "begun"))) await sleep(20);
    terminal.type("\x03");
    await terminal.sees(/stopped here.*> /s);
    assert.equal(runs("sleep 1988.25"), false);
    terminal.type("and now\r");
    await terminal.sees(/unused.*> /s);
    terminal.type("\x04");
    assert.equal(await terminal.ended, 0);
  });
});

describe("what a terminal shows", () => {
  it("are no control characters of tools, of the model or of file names", async () => {
    const evil = "\x1b]0;title\x07\x1b[2J\x9b31m\u202e";
    user.script(
      {
        text: `said ${evil}`,
        calls: [shell(`printf 'out\\033[2J\\302\\233'; printf '${evil}' > "a$(printf '\\033')b"`)],
      },
      "End.",
    );
    const terminal = user.terminal(["agent", "--yes", "go"]);
    await terminal.sees(/End\./);
    assert.equal(await terminal.ended, 0);
    const own = terminal.raw.replaceAll(/\p{Cc}\[(?:[\d;]*[mGJ]|\?2004[hl])/gu, "");
    assert.doesNotMatch(own, /[^\P{Cc}\r\n\t]/u);
    assert.ok(!terminal.raw.includes("\u001b[2J") && !terminal.raw.includes("\u001b]"));
    assert.match(terminal.raw, /out\\u\{1b\}\[2J\\u\{9b\}/);
    assert.match(terminal.raw, /created a\\u\{1b\}b/);
  });

  it("is readable without colours on a narrow terminal", async () => {
    const text = "ä👩‍👩‍👧中".repeat(40);
    user.script({ calls: [shell(`echo '${text}'; seq 100`)] }, "End.");
    const terminal = user.terminal(["agent", "--yes", "go"], { columns: 30, environment: { NO_COLOR: "1" } });
    const shown = await terminal.sees(/End\./);
    assert.equal(await terminal.ended, 0);
    assert.doesNotMatch(terminal.raw, /\p{Cc}\[\d+m/u);
    assert.match(shown, /… 81 more lines …/);
    assert.ok(shown.includes("ä👩"), shown);
  });
});

describe("a session", () => {
  it("continues in a later command of the folder, with what tools have returned", async () => {
    user.script({ text: "Let me see.", calls: [shell("echo secret-$((6*7))")] }, "I know it.");
    assert.equal((await user.run("agent", "--yes", "find it")).code, 0);
    user.script("It is 42.");
    const terminal = user.terminal(["run", "--agent", "--continue"]);
    await terminal.sees(/continues after 1 message.*> /s);
    terminal.type("what is it?\r");
    await terminal.sees(/It is 42\..*> /s);
    terminal.type("\x04");
    assert.equal(await terminal.ended, 0);
    const { messages } = user.seen().at(-1)!;
    assert.deepEqual(
      messages.map(({ role }) => role),
      ["system", "user", "assistant", "tool", "assistant", "user"],
    );
    assert.match(messages[3]!.content, /secret-42/);
  });

  it("starts again after /clear", async () => {
    user.script({ calls: [python("x = 1")] }, "Set.", { calls: [python("print('x' in globals())")] }, "Looked.");
    const terminal = user.terminal(["run", "--agent", "--yes"]);
    await terminal.sees(/> $/);
    terminal.type("set x\r");
    await terminal.sees(/Set\..*> /s);
    terminal.type("/clear\r");
    await terminal.sees(/conversation cleared.*> /s);
    terminal.type("look\r");
    assert.match(await terminal.sees(/Looked\..*> /s), /False/);
    terminal.type("\x04");
    assert.equal(await terminal.ended, 0);
    assert.equal(readFileSync(join(user.base, "state", "troupe", "run-history"), "utf8"), "set x\n/clear\nlook\n");
  });
});
