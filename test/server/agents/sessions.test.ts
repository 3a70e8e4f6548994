// biome-ignore-all lint/suspicious/noExplicitAny: the bodies of three protocols are read field by field
// Agent sessions over HTTP: export, import and deletion.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { failure } from "../../fixtures/fakes/fake-inference.ts";
import { chat, checked, commands, messages, post, python, question, runs, shell } from "./clients.ts";
import { type AgentRig, startAgents } from "./rig.ts";

const rolesOf = (chat: readonly { readonly role: string }[] = []) => chat.map(({ role }) => role);

let rig: AgentRig;
before(async () => {
  rig = await startAgents();
});
after(async () => {
  await rig.stop();
});

describe("sessions of agent runs", () => {
  it("move to another server and continue there", async () => {
    rig.script(commands("echo data > moved.txt"), "made");
    const first = await chat.ask(rig.url, { messages: [question] });
    const exported = await checked(await fetch(`${rig.url}/v1/sessions/${first.session}`));
    assert.deepEqual(
      exported.messages.map((message: any) => [message.role, message.visible]),
      [
        ["user", 0],
        ["assistant", 1],
        ["tool", 1],
        ["assistant", 1],
      ],
    );
    assert.equal(exported.files[0].text, "data\n");
    const other = await startAgents();
    try {
      const put = await fetch(`${other.url}/v1/sessions/${first.session}`, {
        method: "PUT",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(exported),
      });
      assert.deepEqual([put.status, await put.json()], [200, {}]);
      other.script("there");
      const body = {
        messages: [question, { role: "assistant", content: "made" }, { role: "user", content: "go on" }],
        session_id: first.session,
      };
      const reply = await post(`${other.url}/v1/chat/completions`, body);
      assert.equal(reply.status, 200, await reply.clone().text());
      assert.deepEqual(
        other.seen()[0]!.map(({ role }) => role),
        ["user", "assistant", "tool", "assistant", "user"],
      );
      assert.equal((await fetch(`${other.url}/v1/files/${exported.files[0].id}/content`)).status, 200);
    } finally {
      await other.stop();
    }
  });

  for (const protocol of [chat, messages]) {
    it(`fit the conversation after an empty message at the end, over ${protocol.name}`, async () => {
      const opening = { role: "user", content: `an empty end ${protocol.name}` };
      rig.script(runs("1"), "one");
      const first = await protocol.ask(rig.url, { messages: [opening, { role: "assistant", content: "" }] });
      rig.script("two");
      const said = [opening, { role: "assistant", content: "one" }, { role: "user", content: "go on" }];
      const second = await protocol.ask(rig.url, { messages: said });
      assert.equal(second.session, first.session);
      assert.deepEqual(rolesOf(rig.seen()[0]), ["user", "assistant", "tool", "assistant", "user"]);
    });
  }

  it("continue a run that was cut off, after the results that it had", async () => {
    rig.script(runs("kept = 1"), { events: [failure("model_failed")] });
    const failed = await chat.stream(rig.url, { messages: [question], more: { session_id: "cut" } });
    assert.equal(failed.end, "model_failed");
    const leave = new AbortController();
    rig.script({
      calls: [
        [shell, { commands: ["sleep 30"] }],
        [python, { code: "kept + 1" }],
      ],
    });
    const leaving = chat.stream(
      rig.url,
      { messages: [question], more: { session_id: "cut" } },
      (name, { phase }) => {
        if (name === "agentic_tool_call_progress" && phase === "complete") leave.abort();
      },
      leave.signal,
    );
    await assert.rejects(leaving);
    assert.deepEqual(rolesOf(rig.seen()[0]), ["user", "assistant", "tool"]);
    rig.script("two");
    await chat.ask(rig.url, { messages: [question], more: { session_id: "cut" } });
    const [prompt] = rig.seen();
    assert.deepEqual(rolesOf(prompt), ["user", "assistant", "tool", "assistant", "tool", "tool"]);
    assert.match(prompt![4]!.content, /interrupted|cancelled/);
    assert.match(prompt![5]!.content, /"result":"2"/);
    rig.script("three");
    const said = [question, { role: "assistant", content: "two" }, { role: "user", content: "go on" }];
    await chat.ask(rig.url, { messages: said, more: { session_id: "cut" } });
    assert.deepEqual(rolesOf(rig.seen()[0]).slice(-3), ["tool", "assistant", "user"]);
  });

  it("keep the results of a run that the client ended, before its next message", async () => {
    rig.script(runs("1"), { events: [failure("model_failed")] });
    await chat.stream(rig.url, { messages: [question], more: { session_id: "stopped" } });
    rig.script("fine");
    const said = [question, { role: "user", content: "rather something else" }];
    await chat.ask(rig.url, { messages: said, more: { session_id: "stopped" } });
    assert.deepEqual(rolesOf(rig.seen()[0]), ["user", "assistant", "tool", "user"]);
    rig.script("fine too");
    const more = [...said, { role: "assistant", content: "fine" }, { role: "user", content: "go on" }];
    await chat.ask(rig.url, { messages: more, more: { session_id: "stopped" } });
    assert.deepEqual(rolesOf(rig.seen()[0]), ["user", "assistant", "tool", "user", "assistant", "user"]);
  });

  for (const said of ["", "Let me see. "]) {
    it(`continue a paused turn of the messages protocol with the text ${JSON.stringify(said)}`, async () => {
      const opening = { role: "user", content: `pause ${said}` };
      const ask = async (conversation: readonly object[], more: object = {}) =>
        await checked(
          await post(`${rig.url}/v1/messages`, {
            messages: conversation,
            max_tokens: 1000,
            tools: [{ type: "code_execution_20250825", name: "code_execution" }],
            ...more,
          }),
        );
      rig.script({ text: said, calls: [[python, { code: "x = 1" }]] }, runs("x"));
      const paused = await ask([opening], { max_tool_rounds: 1 });
      assert.equal(paused.stop_reason, "pause_turn");
      const continued = [opening, { role: "assistant", content: paused.content }];
      rig.script(runs("x + 1"), "It is 2.");
      const answer = await ask(continued);
      assert.equal(answer.stop_reason, "end_turn");
      assert.equal(answer.session_id, paused.session_id);
      assert.match(answer.agentic_tool_calls[0].result_content, /"result":"2"/);
      assert.deepEqual(rolesOf(rig.seen()[0]), ["user", "assistant", "tool", "assistant", "tool"]);
      rig.script("again");
      const whole = [...continued, { role: "assistant", content: answer.content }, { role: "user", content: "thanks" }];
      assert.equal((await ask(whole)).session_id, paused.session_id);
      assert.deepEqual(rolesOf(rig.seen()[0]).slice(4), ["tool", "assistant", "tool", "assistant", "user"]);
    });
  }

  it("refuse to continue an assistant's message that is not paused", async () => {
    rig.script("four");
    const { session } = await chat.ask(rig.url, { messages: [question] });
    const asked = [question, { role: "assistant", content: "four" }];
    const reply = await post(`${rig.url}/v1/chat/completions`, { messages: asked, session_id: session });
    assert.deepEqual([reply.status, ((await reply.json()) as any).error.param], [400, "messages"]);
  });

  it("are deleted with their state, and invalid imports are rejected", async () => {
    const foreign = {
      ...{ name: "x", format: null, mime_type: "text/plain", bytes: 1, created_at: 0, purpose: "user_data", text: "x" },
      source: { tool: "user_upload", round: 0, turn: 0 },
    };
    rig.script(runs("1"), "one");
    const { session } = await chat.ask(rig.url, { messages: [question] });
    for (const deleted of [true, false]) {
      const reply = await fetch(`${rig.url}/v1/sessions/${session}`, { method: "DELETE" });
      assert.deepEqual([reply.status, ((await reply.json()) as { deleted: boolean }).deleted], [200, deleted]);
    }
    assert.equal((await fetch(`${rig.url}/v1/sessions/${session}`)).status, 404);
    for (const body of [
      {},
      { version: 2 },
      {
        version: 1,
        turns: 0,
        messages: [{ role: "user", content: "x", visible: 5 }],
        images: [],
        videos: [],
        files: [],
      },
      { version: 1, turns: 0, messages: [], images: [], videos: [], files: [{ ...foreign, id: "backup" }] },
    ]) {
      const reply = await fetch(`${rig.url}/v1/sessions/abc`, {
        method: "PUT",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
      });
      assert.equal(reply.status, 400);
    }
  });
});
