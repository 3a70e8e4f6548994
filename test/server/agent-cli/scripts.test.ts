// `troupe agent` without a terminal, as in scripts: exit codes, JSON, sessions, and protection of the user's folder.
import assert from "node:assert/strict";
import { once } from "node:events";
import { existsSync, mkdirSync, readdirSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import { approvalRequestSchema, fileObjectSchema, progressSchema } from "../../../http/shared/agent/wire.ts";
import { failure } from "../../fixtures/fakes/fake-inference.ts";
import { python, runs, shell, User } from "./rig.ts";

let user: User;
beforeEach(() => {
  user = new User();
});
afterEach(() => user.leave());

describe("a task without a terminal", () => {
  it("is refused without --yes, before anything runs", async () => {
    user.script({ calls: [shell("touch made")] });
    const { code, stdout, stderr } = await user.run("agent", "go");
    assert.deepEqual([code, stdout], [2, ""]);
    assert.match(stderr, /^troupe: calls of tools are asked for on a terminal, and this command has none: --yes/);
    assert.deepEqual(user.seen(), []);
  });

  it("runs with --yes: stdout has the model's text, stderr what tools did", async () => {
    user.script({ text: "Now. ", calls: [shell("echo hi > made; echo out")] }, "Done.");
    const { code, stdout, stderr } = await user.run("agent", "--yes", "go");
    assert.equal(code, 0, stderr);
    assert.equal(stdout, "Now. \nDone.\n");
    assert.match(stderr, /\$ echo hi > made.*out\n {2}exit code 0\ncreated made\n.*\+hi/s);
    assert.equal(user.read("made"), "hi\n");
    assert.deepEqual(user.seen()[0]?.tools.slice(0, 3), [
      "service_execute_python",
      "service_reset_python_session",
      "service_shell",
    ]);
  });

  it("tells a model that calls an unknown tool, which then goes on", async () => {
    user.script({ calls: [["read_mail", {}]] }, "I cannot read mail.");
    const { code, stdout, stderr } = await user.run("agent", "--yes", "go");
    assert.deepEqual([code, stdout], [0, "I cannot read mail.\n"], stderr);
    assert.match(user.lastSeen(), /no tool of this name/);
    assert.match(stderr, /read_mail, call 1:\n.*no tool of this name.*\n {2}failed\n/);
  });

  it("offers only the tools that are named", async () => {
    user.script("Nothing to do.");
    const { code, stderr } = await user.run("agent", "--yes", "--enable-shell", "go");
    assert.equal(code, 0, stderr);
    assert.deepEqual(user.seen()[0]?.tools, ["service_shell"]);
  });

  it("fails with exit code 1 if the model fails, or uses up the rounds", async () => {
    user.script({ events: [failure("model_failed", "the model is broken")] });
    const failed = await user.run("agent", "--yes", "go");
    assert.equal(failed.code, 1);
    assert.match(failed.stderr, /^troupe: the model is broken$/m);
    user.script({ calls: [shell("echo 1")] }, { calls: [shell("echo 2")] }, { calls: [shell("echo 3")] });
    const limited = await user.run("agent", "--yes", "--max-tool-rounds", "2", "go");
    assert.equal(limited.code, 1);
    assert.match(limited.stderr, /the limit of 2 rounds of tool calls is reached.*--max-tool-rounds/);
  });

  it("expects one task and a folder for the agent", async () => {
    user.script();
    const words = await user.run("agent", "--yes", "go", "on");
    assert.match(words.stderr, /agent expects one task in quotes: troupe agent "TASK"; got 2 words/);
    assert.equal(words.code, 2);
    for (const [folder, problem] of [
      [user.home, /contains your home folder/],
      [user.base, /contains your home folder/],
      ["/", /contains your home folder/],
      [join(user.base, "none"), /expects a folder that exists/],
      ["/etc/passwd", /is a file/],
    ] as const) {
      const { code, stderr } = await user.run("agent", "--yes", "--folder", folder, "go");
      assert.equal(code, 2, folder);
      assert.match(stderr, problem);
    }
    assert.match((await user.run("run", "--yes", "-i", "x")).stderr, /"--yes" requires "--enable-search"/);
  });
});

describe("--json", () => {
  const usage = z.strictObject({ prompt_tokens: z.int(), completion_tokens: z.int() });
  const line = z.union([
    z.strictObject({ type: z.literal("session"), session_id: z.string().regex(/^sess_/) }),
    z.strictObject({ type: z.enum(["text_delta", "reasoning_delta"]), text: z.string() }),
    progressSchema,
    approvalRequestSchema,
    fileObjectSchema.extend({ type: z.literal("file_produced") }),
    z.strictObject({ type: z.literal("rounds_reached") }),
    z.strictObject({ type: z.literal("finish"), reason: z.string() }),
    z.strictObject({ type: z.literal("done"), usage }),
    z.strictObject({ type: z.literal("error"), error: z.strictObject({ code: z.string(), message: z.string() }) }),
  ]);
  const events = (stdout: string) =>
    stdout
      .trimEnd()
      .split("\n")
      .map((text) => line.parse(JSON.parse(text)));

  it("prints each event as a line of its schema, and nothing else", async () => {
    const call = ["service_shell", { commands: ["echo a\u2028 > out.txt"], outputs: [{ name: "out.txt" }] }] as const;
    user.script({ text: "Now\n", calls: [call, python("1/0")] }, "Done.");
    const { code, stdout, stderr } = await user.run("agent", "--yes", "--json", "go");
    assert.equal(code, 0, stderr);
    const kinds = events(stdout).map((event) => ("phase" in event ? event.phase : event.type));
    assert.deepEqual(kinds.slice(0, 4), ["session", "text_delta", "calling", "calling"]);
    assert.deepEqual(kinds.slice(4, 7).sort(), ["complete", "complete", "file_produced"]);
    assert.deepEqual(kinds.slice(7), ["text_delta", "finish", "done"]);
    assert.equal(stderr, "");
  });

  it("ends with the error of a failed run", async () => {
    user.script({ events: [failure("model_failed", "broken")] });
    const { code, stdout } = await user.run("agent", "--yes", "--json", "go");
    assert.equal(code, 1);
    assert.deepEqual(events(stdout).at(-1), { type: "error", error: { code: "model_failed", message: "broken" } });
  });
});

describe("a session of a script", () => {
  it("is continued by its id, in its own folder only", async () => {
    user.script("Hello.");
    const { stdout } = await user.run("agent", "--yes", "--json", "hi");
    const { session_id: id } = JSON.parse(stdout.split("\n")[0] ?? "") as { session_id: string };
    user.script("Again.");
    assert.equal((await user.run("agent", "--yes", "--session", id, "and?")).code, 0);
    assert.deepEqual(
      user
        .seen()[0]
        ?.messages.map(({ content }) => content)
        .slice(1),
      ["hi", "Hello.", "and?"],
    );
    const elsewhere = join(user.base, "elsewhere");
    mkdirSync(elsewhere);
    const other = await user.run("agent", "--yes", "--session", id, "--folder", elsewhere, "and?");
    assert.match(other.stderr, /the session sess_\w+ works in .*work, not in .*elsewhere/);
    const none = await user.run("agent", "--yes", "--continue", "--folder", elsewhere, "and?");
    assert.match(none.stderr, /no session of the folder .*elsewhere can be continued/);
    const path = await user.run("agent", "--yes", "--session", "../../x", "and?");
    assert.match(path.stderr, /no session has the id "\.\.\/\.\.\/x"/);
    assert.deepEqual([other.code, none.code, path.code], [1, 1, 1]);
  });

  it("of a killed command continues after the results so far, and its files are there", async () => {
    user.write("mine.txt", "mine\n");
    user.script(
      { calls: [shell("echo found-$((40+2)); echo made > made.txt")] },
      { calls: [shell("touch waits; sleep 1989.25")] },
    );
    const child = user.start(["agent", "--yes", "go"]);
    while (!existsSync(join(user.folder, "waits"))) await sleep(20);
    child.kill("SIGKILL");
    await once(child, "close");
    for (let i = 0; runs("sleep 1989.25") && i < 100; i++) await sleep(20);
    assert.equal(runs("sleep 1989.25"), false, "the tools end with the command");
    assert.deepEqual(readdirSync(user.folder).sort(), ["made.txt", "mine.txt", "waits"]);
    user.script("It was 42.");
    assert.equal((await user.run("agent", "--yes", "--continue", "well?")).code, 0);
    const { messages } = user.seen()[0]!;
    assert.ok(
      messages.some(({ role, content }) => role === "tool" && content.includes("found-42")),
      JSON.stringify(messages),
    );
    assert.equal(user.read("mine.txt"), "mine\n");
  });
});

describe("the user's folder", () => {
  it("is as before but for what tools wrote, and nothing is put beside it", async () => {
    mkdirSync(join(user.folder, "sub"));
    user.write("sub/kept.txt", "kept\n");
    symlinkSync(user.home, join(user.folder, "link"));
    writeFileSync(join(user.home, "secret.txt"), "secret\n");
    const { ino } = statSync(user.folder);
    user.script({ calls: [shell("cat link/secret.txt; cd; pwd; echo x > f; ls -a")] }, "End.");
    const { code, stderr } = await user.run("agent", "--yes", "go");
    assert.equal(code, 0, stderr);
    assert.match(user.lastSeen(), /No such file/, "a link out of the folder leads nowhere");
    assert.doesNotMatch(user.lastSeen(), /secret\\n/);
    assert.deepEqual(readdirSync(user.folder).sort(), ["link", "sub"], "the home folder of tools is another one");
    assert.equal(statSync(user.folder).ino, ino);
    assert.equal(user.read("sub/kept.txt"), "kept\n");
    assert.deepEqual(readdirSync(user.base).sort(), ["home", "script.json", "seen.jsonl", "state", "work"]);
    assert.deepEqual(readdirSync(user.home), ["secret.txt"]);
  });

  it("is the only one that tools can write", async () => {
    const outside = join(user.base, "outside.txt");
    user.script(
      { calls: [shell(`echo x > ${outside}; echo x > /usr/x; echo x > ../x; echo in > in.txt; true`)] },
      "End.",
    );
    assert.equal((await user.run("agent", "--yes", "go")).code, 0);
    assert.equal(existsSync(outside), false);
    assert.equal(user.read("in.txt"), "in\n");
  });

  it("may be larger than the disk limit, which counts what a command adds", async () => {
    user.write("large.bin", "x".repeat(40 * 2 ** 20));
    const fill = "for i in 1 2 3 4 5 6 7 8; do dd if=/dev/zero of=$i bs=1M count=12; done; sleep 20; touch ended";
    user.script({ calls: [shell("echo fine; sleep 0.5")] }, { calls: [shell(fill)] }, "End.");
    const { code, stderr } = await user.run("agent", "--yes", "--max-disk-mb", "32", "go");
    assert.equal(code, 0, stderr);
    const [, first = "", second = ""] = user.seen().map(({ messages }) => messages.at(-1)?.content);
    assert.match(first, /"exit_code":0.*fine/);
    assert.match(second, /exceeded the limit of disk/);
    assert.equal(existsSync(join(user.folder, "ended")), false);
    assert.equal(statSync(join(user.folder, "large.bin")).size, 40 * 2 ** 20);
  });

  it("with very many files can be worked in, without diffs", async () => {
    for (let i = 0; i < 220; i++) {
      mkdirSync(join(user.folder, `d${i}`));
      for (let j = 0; j < 100; j++) writeFileSync(join(user.folder, `d${i}`, `${j}`), "");
    }
    user.script({ calls: [shell("touch new")] }, "End.");
    const startedAt = Date.now();
    const { code, stderr } = await user.run("agent", "--yes", "go");
    assert.equal(code, 0, stderr);
    assert.match(stderr, /too many files for changed ones to be shown/);
    assert.ok(existsSync(join(user.folder, "new")));
    assert.ok(Date.now() - startedAt < 20_000);
  });
});
