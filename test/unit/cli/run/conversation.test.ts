// Conversation of `troupe run`: its content, and how REPL commands change it.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { completeCommand, isCommand, runCommand } from "../../../../cli/run/commands.ts";
import { Conversation } from "../../../../cli/run/conversation.ts";

const create = () => new Conversation(["/models/small.gguf", "/models/large.gguf"], "/models/small.gguf");

const adapters = new Map([["/models/small.gguf", ["code", "math"]]]);
const adapted = () => new Conversation(["/models/small.gguf", "/models/large.gguf"], "/models/small.gguf", adapters);

const greeting = { question: "hi", answer: "hello", isCut: false };

describe("a conversation", () => {
  it("is the system prompt, the earlier messages, and the new question, in this order", () => {
    const conversation = create();
    conversation.system = "be brief";
    conversation.add(greeting);
    assert.deepEqual(conversation.messages("and now?"), [
      { role: "system", content: "be brief" },
      { role: "user", content: "hi" },
      { role: "assistant", content: "hello" },
      { role: "user", content: "and now?" },
    ]);
  });

  it("has no system message if there is no system prompt", () => {
    assert.deepEqual(create().messages("hi"), [{ role: "user", content: "hi" }]);
  });
});

describe("a command", () => {
  it("is a line that begins with a slash; only /system accepts several lines", () => {
    assert.equal(isCommand("/help"), true);
    assert.equal(isCommand("/hlep"), true);
    assert.equal(isCommand("/system be\nbrief"), true);
    assert.equal(isCommand("/exit\nthe door"), false);
    assert.equal(isCommand("/usr/bin/env python\nprint()"), false);
    assert.equal(isCommand(" /etc/hosts is what?"), false);
    assert.equal(isCommand("hello"), false);
  });

  it("that is unknown is rejected with the nearest one", async () => {
    await assert.rejects(runCommand("/exti", create()), /unknown command "\/exti"; did you mean "\/exit"\?/);
    await assert.rejects(runCommand("/qqqqqqqq", create()), /unknown command "\/qqqqqqqq"; \/help lists them/);
    await assert.rejects(runCommand("/constructor", create()), /unknown command/);
  });

  it("/help names every command", async () => {
    const help = await runCommand("/help", create());
    for (const name of ["/system", "/clear", "/save", "/model", "/adapter", "/exit"]) {
      assert.match(String(help), new RegExp(`^${name} .*[A-Z]`, "m"));
    }
  });

  it("/exit leaves", async () => {
    assert.equal(await runCommand("/exit", create()), null);
  });

  it("/system sets the prompt, shows it and removes it, and the conversation continues", async () => {
    const conversation = create();
    conversation.add(greeting);
    assert.match(String(await runCommand("/system", conversation)), /no system prompt/);
    assert.match(
      String(await runCommand("/system be brief\nand kind", conversation)),
      /system prompt set; the conversation continues/,
    );
    assert.equal(await runCommand("/system", conversation), "be brief\nand kind");
    assert.match(String(await runCommand('/system ""', conversation)), /system prompt removed/);
    assert.equal(conversation.system, null);
    assert.equal(conversation.turns.length, 1);
  });

  it("/clear removes the messages and keeps the system prompt", async () => {
    const conversation = create();
    conversation.system = "be brief";
    conversation.add(greeting);
    assert.match(String(await runCommand("/clear", conversation)), /the system prompt stays/);
    assert.deepEqual(conversation.messages(), [{ role: "system", content: "be brief" }]);
  });

  it("/model lists the models, switches between them, and rejects others", async () => {
    const conversation = create();
    assert.equal(await runCommand("/model", conversation), "* /models/small.gguf\n  /models/large.gguf");
    assert.match(
      String(await runCommand("/model /models/large.gguf", conversation)),
      /the model is \/models\/large.gguf$/,
    );
    assert.equal(conversation.model, "/models/large.gguf");
    await assert.rejects(runCommand("/model /models/smal.gguf", conversation), {
      code: "model_not_found",
      message: /did you mean "\/models\/small.gguf"/,
    });
    assert.equal(conversation.model, "/models/large.gguf");
  });
});

describe("/adapter", () => {
  it("lists the adapters of the model, with the one in use", async () => {
    const conversation = adapted();
    assert.equal(await runCommand("/adapter", conversation), "* none\n  code\n  math");
    await runCommand("/adapter math", conversation);
    assert.equal(await runCommand("/adapter", conversation), "  none\n  code\n* math");
    assert.match(String(await runCommand("/adapter", create())), /^the model has no adapters; --lora ALIAS=SOURCE/);
  });

  it("continues with one, and without", async () => {
    const conversation = adapted();
    assert.equal(await runCommand("/adapter code", conversation), "the adapter is code");
    assert.equal(conversation.adapter, "code");
    conversation.add(greeting);
    assert.equal(
      await runCommand("/adapter none", conversation),
      "no adapter: the base model answers; the conversation continues",
    );
    assert.equal(conversation.adapter, null);
    assert.equal(conversation.turns.length, 1);
  });

  it("rejects unknown ones without a change", async () => {
    const conversation = adapted();
    await runCommand("/adapter code", conversation);
    await assert.rejects(runCommand("/adapter mth", conversation), {
      code: "lora_adapter_not_found",
      message: 'the model has no adapter "mth"; did you mean "math"?',
    });
    await assert.rejects(runCommand("/adapter qqqqqq", conversation), /"qqqqqq"; it has: code, math$/);
    await assert.rejects(runCommand("/adapter code", create()), /"code"; it has none$/);
    assert.equal(conversation.adapter, "code");
  });

  it("applies to a model, and not to the next one", async () => {
    const conversation = adapted();
    await runCommand("/adapter code", conversation);
    await runCommand("/clear", conversation);
    assert.equal(conversation.adapter, "code");
    await runCommand("/model /models/large.gguf", conversation);
    assert.deepEqual([conversation.adapter, conversation.adapters], [null, []]);
  });
});

describe("completion", () => {
  it("offers the commands that begin like the line, and the models after /model", () => {
    assert.deepEqual(completeCommand("/s", create()), [["/system", "/set", "/save"], "/s"]);
    assert.deepEqual(completeCommand("/cl", create()), [["/clear"], "/cl"]);
    assert.deepEqual(completeCommand("/model /models/l", create()), [["/models/large.gguf"], "/models/l"]);
    assert.deepEqual(completeCommand("/adapter ", adapted()), [["code", "math", "none"], ""]);
    assert.deepEqual(completeCommand("/adapter m", adapted()), [["math"], "m"]);
  });

  it("offers nothing in a message", () => {
    assert.deepEqual(completeCommand("say ", create())[0], []);
    assert.deepEqual(completeCommand("/system be", create())[0], []);
  });
});

describe("/save", () => {
  let folder = "";
  before(() => {
    folder = mkdtempSync(join(tmpdir(), "troupe-save-"));
  });
  after(() => rmSync(folder, { recursive: true, force: true }));

  const said = () => {
    const conversation = create();
    conversation.system = "be brief";
    conversation.add(greeting);
    conversation.add({ question: "more", answer: "well,", isCut: true });
    return conversation;
  };

  it("writes the body of a chat request where the file is called .json", async () => {
    const path = join(folder, "chat.json");
    assert.equal(await runCommand(`/save ${path}`, said()), `saved to ${path}`);
    assert.deepEqual(JSON.parse(readFileSync(path, "utf8")), {
      model: "/models/small.gguf",
      messages: [
        { role: "system", content: "be brief" },
        { role: "user", content: "hi" },
        { role: "assistant", content: "hello" },
        { role: "user", content: "more" },
        { role: "assistant", content: "well," },
      ],
    });
  });

  it("names the adapter that was used last", async () => {
    const conversation = adapted();
    conversation.useAdapter("math");
    for (const file of ["adapted.json", "adapted.md"]) await runCommand(`/save ${join(folder, file)}`, conversation);
    const { adapter } = JSON.parse(readFileSync(join(folder, "adapted.json"), "utf8"));
    assert.equal(adapter, "math");
    assert.match(
      readFileSync(join(folder, "adapted.md"), "utf8"),
      /^# Conversation with \/models\/small\.gguf, adapter math$/m,
    );
  });

  it("writes Markdown otherwise, and marks an answer that was stopped", async () => {
    const path = join(folder, "with space.md");
    await runCommand(`/save ${path}`, said());
    assert.equal(
      readFileSync(path, "utf8"),
      "# Conversation with /models/small.gguf\n\n## System\n\nbe brief\n\n## User\n\nhi\n\n## Assistant\n\nhello\n\n" +
        "## User\n\nmore\n\n## Assistant\n\nwell,\n\n_(stopped here)_\n",
    );
  });

  it("overwrites a file only when told to", async () => {
    const path = join(folder, "there.md");
    writeFileSync(path, "mine");
    await assert.rejects(runCommand(`/save ${path}`, said()), /it exists; \/save! .*there\.md overwrites it/);
    assert.equal(readFileSync(path, "utf8"), "mine");
    await runCommand(`/save! ${path}`, said());
    assert.match(readFileSync(path, "utf8"), /^# Conversation/);
  });

  it("reports a file that cannot be written, and a missing file name", async () => {
    await assert.rejects(runCommand(`/save ${join(folder, "no", "folder.md")}`, said()), /cannot write ".*": ENOENT/);
    await assert.rejects(runCommand("/save", said()), /\/save expects a file.*got none/);
  });
});
