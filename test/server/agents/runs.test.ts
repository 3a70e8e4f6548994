// biome-ignore-all lint/suspicious/noExplicitAny: the bodies of three protocols are read field by field
// Agent runs over each protocol: a scripted model, real tools in the sandbox, and real stores.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { failure } from "../../fixtures/fakes/fake-inference.ts";
import { chat, commands, messages, post, python, question, responses, runs, shell, weather } from "./clients.ts";
import { type AgentRig, startAgents } from "./rig.ts";

let rig: AgentRig;
before(async () => {
  rig = await startAgents();
});
after(async () => {
  await rig.stop();
});

for (const protocol of [chat, responses, messages]) {
  describe(`an agent run over ${protocol.name}`, () => {
    it("runs code, feeds the result back and answers", async () => {
      rig.script(runs("6 * 7"), "It is 42.");
      const answer = await protocol.ask(rig.url, { messages: [question] });
      assert.deepEqual([answer.text, answer.end], ["It is 42.", "stop"]);
      assert.equal(answer.ran[0]?.name, python);
      assert.match(answer.ran[0]?.result ?? "", /"result":"42"/);
      assert.match(rig.seen().at(-1)!.at(-1)?.content ?? "", /"result":"42"/);
      assert.match(answer.session ?? "", /^sess_/);
    });

    it("streams the progress of a tool between the model's texts", async () => {
      rig.script({ text: "Let me see. ", calls: [[python, { code: "print('hi')" }]] }, "Done.");
      const answer = await protocol.stream(rig.url, { messages: [question] });
      assert.equal(answer.text, "Let me see. Done.");
      assert.deepEqual(answer.events.filter((name) => name === "agentic_tool_call_progress").length, 2);
      assert.match(answer.ran[0]?.result ?? "", /hi/);
      assert.equal(answer.end, "stop");
    });

    it("runs calls of one turn in parallel and gives their results in order", async () => {
      rig.script(
        {
          calls: [
            [shell, { commands: ["sleep 0.4; echo slow"] }],
            [shell, { commands: ["echo fast"] }],
            [python, { code: "'cell'" }],
          ],
        },
        "ok",
      );
      const startedAt = performance.now();
      const answer = await protocol.ask(rig.url, { messages: [question] });
      assert.ok(performance.now() - startedAt < 1500);
      assert.deepEqual(
        rig
          .seen()
          .at(-1)!
          .slice(-3)
          .map(({ content }) => /slow|fast|cell/.exec(content)?.[0]),
        ["slow", "fast", "cell"],
      );
      assert.equal(answer.end, "stop");
    });

    it("continues for several rounds, and each sees the results of all earlier rounds", async () => {
      rig.script(runs("x = 1"), runs("x += 1\nx"), commands("echo three"), "three rounds");
      const answer = await protocol.ask(rig.url, { messages: [question] });
      assert.equal(answer.ran.length, 3);
      assert.equal(rig.seen().length, 4);
      assert.deepEqual(
        rig
          .seen()
          .at(-1)!
          .map(({ role }) => role),
        ["user", "assistant", "tool", "assistant", "tool", "assistant", "tool"],
      );
      assert.equal(answer.text, "three rounds");
    });

    it("returns a call of the client's own tool in the middle, and continues with its result", async () => {
      rig.script({
        calls: [
          [python, { code: "y = 5" }],
          // Clients return the arguments without this white space.
          ["get_weather", '{"unit": "C", "city": "Bonn"}'],
        ],
      });
      const first = await protocol.ask(rig.url, { messages: [question], clientTools: true });
      assert.equal(first.end, "tool_calls");
      assert.deepEqual(
        first.clientCalls.map(({ name }) => name),
        ["get_weather"],
      );
      assert.equal(first.ran.length, 1);
      rig.script(runs("y"), "Sunny, and y is 5.");
      const call = first.clientCalls[0]!;
      const assistant = {
        role: "assistant",
        content: "",
        tool_calls: [
          { id: call.id, type: "function", function: { name: call.name, arguments: '{"city":"Bonn","unit":"C"}' } },
        ],
      };
      const second = await protocol.ask(rig.url, {
        messages: [question, assistant, { role: "tool", tool_call_id: call.id, content: "sunny" }],
        clientTools: true,
        more: { session_id: first.session },
      });
      assert.match(second.ran[0]?.result ?? "", /"result":"5"/, "the variables are still there");
      const roles = rig.seen()[0]!.map(({ role }) => role);
      if (protocol !== responses)
        assert.deepEqual(roles, ["user", "assistant", "tool", "tool"], "the server's own call is in the prompt again");
    });

    it("ends as incomplete when the limit of rounds is reached", async () => {
      rig.script(runs("1"), runs("2"), runs("3"));
      const answer = await protocol.ask(rig.url, { messages: [question], more: { max_tool_rounds: 2 } });
      assert.equal(answer.ran.length, 2);
      assert.equal(answer.end, protocol === chat ? "length" : "max_tool_calls");
    });

    it("tells the model about errors in code and arguments, and about a tool that does not exist", async () => {
      rig.script(runs("1 / 0"), { calls: [[python, { wrong: 1 }]] }, { calls: [[shell, "not json"]] }, "sorry");
      const answer = await protocol.ask(rig.url, { messages: [question] });
      assert.match(answer.ran[0]?.result ?? "", /ZeroDivisionError/);
      assert.match(answer.ran[1]?.result ?? "", /invalid arguments/);
      assert.match(answer.ran[2]?.result ?? "", /JSON object/);
      assert.equal(answer.text, "sorry");
    });

    it("returns created files, and reports which requested files are missing", async () => {
      rig.script(
        {
          calls: [
            [
              python,
              { code: "open('table.csv', 'w').write('a,b')", outputs: [{ name: "table.csv" }, { name: "plot.png" }] },
            ],
          ],
        },
        "here",
      );
      const events: string[] = [];
      const answer = await protocol.stream(
        rig.url,
        { messages: [question], more: { files: [{ name: "table.csv" }] } },
        (name, data) => {
          if (name === "file_produced") events.push(`${data.name} ${data.code ?? data.text}`);
        },
      );
      assert.deepEqual(events, ["table.csv a,b", "plot.png not_produced"]);
      assert.match(rig.seen().at(-1)!.at(-1)?.content ?? "", /"preview":"a,b"/);
      assert.equal(answer.end, "stop");
    });

    it("tells the model which files are requested, and reports those that no tool made", async () => {
      rig.script("I made nothing.");
      const files = [{ name: "sums/report.csv", format: "csv", description: "Totals by year" }];
      const missing: Record<string, unknown>[] = [];
      const answer = await protocol.stream(rig.url, { messages: [question], more: { files } }, (name, data) => {
        if (name === "file_produced") missing.push(data);
      });
      assert.equal(answer.text, "I made nothing.");
      assert.equal(
        rig.seen()[0]!.at(-1)!.content,
        `${question.content}\n\n[Files to produce in the working directory]\n- "sums/report.csv" (csv): Totals by year`,
      );
      assert.deepEqual(
        missing.map(({ name, code }) => [name, code]),
        [["sums/report.csv", "not_produced"]],
      );
      assert.equal((await fetch(`${rig.url}/v1/files/${missing[0]?.id}/content`)).status, 422);
    });

    it("is stopped by a failing model, after the output that was already sent", async () => {
      rig.script(runs("1"), { events: [failure("model_failed")] });
      const answer = await protocol.stream(rig.url, { messages: [question] });
      assert.equal(answer.ran.length, 1);
      assert.ok(answer.events.includes("error") || answer.end === "model_failed", JSON.stringify(answer.events));
    });

    it("stops the running tool when the client disconnects", async () => {
      rig.script(runs("import time\nopen('started', 'w').close()\ntime.sleep(30)"));
      const leave = new AbortController();
      const streaming = protocol.stream(
        rig.url,
        { messages: [question] },
        (name) => {
          if (name === "agentic_tool_call_progress") setTimeout(() => leave.abort(), 300);
        },
        leave.signal,
      );
      const startedAt = performance.now();
      await assert.rejects(streaming);
      await sleep(300);
      assert.ok(performance.now() - startedAt < 3000);
      assert.equal(rig.seen().length, 1, "no further round runs");
    });

    it("asks for approval in the stream, and continues with the decision", async () => {
      for (const [decision, result] of [
        ["approve", /"result":"42"/],
        ["deny", /^not this/],
      ] as const) {
        rig.script(runs("6 * 7"), "fine");
        const statuses: string[] = [];
        const more = { agent_permission: "ask" };
        const answer = await protocol.stream(rig.url, { messages: [question], more }, (name, data) => {
          if (name !== "agentic_tool_approval_required") return;
          void (async () => {
            await sleep(20);
            const pending = (await (
              await fetch(`${rig.url}/v1/agent/approvals?session_id=${data.session_id}`)
            ).json()) as { data: { approval_id: string }[] };
            assert.deepEqual(
              pending.data.map(({ approval_id }) => approval_id),
              [data.approval_id],
            );
            const message = decision === "deny" ? { message: "not this" } : {};
            const reply = await post(`${rig.url}/v1/agent/approvals/${data.approval_id}`, { decision, ...message });
            statuses.push(((await reply.json()) as { status: string }).status);
            const again = await post(`${rig.url}/v1/agent/approvals/${data.approval_id}`, { decision: "approve" });
            statuses.push(`${again.status} ${((await again.json()) as { status: string }).status}`);
          })();
        });
        await sleep(50);
        assert.deepEqual(statuses, ["resolved", "404 not_found"]);
        assert.match(rig.seen().at(-1)!.at(-1)?.content ?? "", result);
        assert.equal(answer.text, "fine");
      }
    });

    it("asks no more after an approval for the session, also in its next request", async () => {
      rig.script(runs("1"), runs("2"), "done");
      let asked = 0;
      const ask = (more: object) =>
        protocol.stream(rig.url, { messages: [question], more: { agent_permission: "ask", ...more } }, (name, data) => {
          if (name !== "agentic_tool_approval_required") return;
          asked++;
          void post(`${rig.url}/v1/agent/approvals/${data.approval_id}`, {
            decision: "approve",
            remember_for_session: true,
          });
        });
      const first = await ask({});
      assert.equal(asked, 1);
      rig.script(runs("3"), "done");
      await ask({ session_id: first.session });
      assert.equal(asked, 1);
    });

    it("rejects calls that need approval when nobody could decide", async () => {
      const path = protocol === chat ? "/v1/chat/completions" : `/v1/${protocol.name}`;
      const content = protocol === responses ? { input: "hi" } : { messages: [question] };
      const reply = await post(`${rig.url}${path}`, {
        ...content,
        max_tokens: 10,
        enable_shell: true,
        agent_permission: "ask",
      });
      assert.equal(reply.status, 400);
      assert.match(await reply.text(), /stream=true/);
    });

    it("refuses a client's tool with the name of one of the server's", async () => {
      const path = protocol === chat ? "/v1/chat/completions" : `/v1/${protocol.name}`;
      const content = protocol === responses ? { input: "hi" } : { messages: [question], max_tokens: 10 };
      const declared = { ...weather, name: shell };
      const tool =
        protocol === chat
          ? { type: "function", function: declared }
          : protocol === responses
            ? { type: "function", ...declared }
            : { name: shell, input_schema: weather.parameters };
      const reply = await post(`${rig.url}${path}`, { ...content, session_id: "named", tools: [tool] });
      assert.equal(reply.status, 400);
      assert.match(await reply.text(), /the server has a tool of this name/);
    });

    it("continues a session: variables, files and hidden messages", async () => {
      rig.script(runs("kept = 'state'\nopen('kept.txt', 'w').write('file')"), "saved");
      const first = await protocol.ask(rig.url, { messages: [question] });
      rig.script(runs("kept + open('kept.txt').read()"), "loaded");
      const more = { session_id: first.session };
      const second = await protocol.ask(rig.url, {
        messages: [question, { role: "assistant", content: "saved" }, { role: "user", content: "and now?" }],
        more,
      });
      assert.match(second.ran[0]?.result ?? "", /statefile/);
      assert.equal(second.session, first.session);
      assert.deepEqual(
        rig.seen()[0]!.map(({ role }) => role),
        ["user", "assistant", "tool", "assistant", "user"],
      );
    });

    it("finds the session from only the conversation, and branches when a message is edited", async () => {
      const opening = { role: "user", content: `start ${protocol.name} ${Math.random()}` };
      rig.script(runs("1"), "first answer");
      const first = await protocol.ask(rig.url, { messages: [opening] });
      const next = (content: string) => [
        opening,
        { role: "assistant", content: "first answer" },
        { role: "user", content },
      ];
      rig.script("second answer");
      const second = await protocol.ask(rig.url, { messages: next("go on") });
      assert.equal(second.session, first.session);
      rig.script("other answer");
      const branch = await protocol.ask(rig.url, { messages: next("go elsewhere") });
      assert.notEqual(branch.session, first.session);
      assert.deepEqual(
        rig.seen()[0]!.map(({ role }) => role),
        ["user", "assistant", "tool", "assistant", "user"],
      );
    });
  });
}
