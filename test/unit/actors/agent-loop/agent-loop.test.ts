import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { afterEach, describe, it } from "node:test";
import { approvalTimeoutMs } from "../../../../actors/agent-loop/approvals.ts";
import type { AgentEvent } from "../../../../actors/api/agent/agents.ts";
import type { ToolOutcome } from "../../../../actors/api/agent/tools.ts";
import { type FakeClock, settled } from "../../../fixtures/fakes/fake-clock.ts";
import { failure } from "../../../fixtures/fakes/fake-inference.ts";
import { outcome } from "./parts.ts";
import { changesOf, createRig, optionsOf, type Rig, ran, requestOf, type Turn } from "./rig.ts";

const python = "service_execute_python";
const shell = "service_shell";

const rigs: Rig[] = [];
function rig(
  turns: readonly Turn[],
  given: Parameters<typeof createRig>[1] = {},
  sources: Parameters<typeof createRig>[3] = [],
): Rig {
  const created = createRig(turns, given, undefined, sources);
  rigs.push(created);
  return created;
}
afterEach(() => {
  for (const { files } of rigs.splice(0)) files.dispose();
});

const types = (events: readonly AgentEvent[]) => events.map(({ type }) => type);
const last = (events: readonly AgentEvent[]) => events.at(-1)!;
const finishOf = (events: readonly AgentEvent[]) => events.find((event) => event.type === "finish")?.reason;
const recordsOf = (events: readonly AgentEvent[]) =>
  events.flatMap((event) => (event.type === "tool_progress" && event.record !== null ? [event.record] : []));

describe("a run of the agent loop", () => {
  it("answers at once if the model calls no tool", async () => {
    const events = await ran(rig(["four"]));
    assert.deepEqual(types(events), ["session", "begin", "text", "finish", "done"]);
  });

  it("feeds the result of a call back until the model answers, and shows only the answer and the progress", async () => {
    const it = rig([[[python, { code: "2 + 2" }]], "four"]);
    it.tools.script = () => outcome({ content: '{"result":"4"}', data: { stdout: "" } });
    const events = await ran(it);
    assert.deepEqual(types(events), ["session", "begin", "tool_progress", "tool_progress", "text", "finish", "done"]);
    const [appended] = changesOf(it, 1)!.splices;
    assert.deepEqual(
      appended!.messages.map(({ role, content, toolCallId }) => [role, content, toolCallId]),
      [
        ["assistant", "", undefined],
        ["tool", '{"result":"4"}', "call_1_0"],
      ],
    );
    assert.equal(changesOf(it, 1)!.callsAreOptional, true);
    assert.deepEqual(recordsOf(events), [
      { round: 0, name: python, arguments: '{"code":"2 + 2"}', result_content: '{"result":"4"}' },
    ]);
  });

  it("sums the usage of its rounds", async () => {
    const events = await ran(rig([[[python, { code: "1" }]], "one"]));
    const end = last(events);
    assert.equal(end.type, "done");
    assert.equal(end.type === "done" && end.usage.completionTokens, 8);
  });

  it("runs the calls of a turn in parallel and keeps the order of their results", async () => {
    const it = rig([
      [
        [shell, { commands: ["slow"] }],
        [shell, { commands: ["fast"] }],
      ],
      "done",
    ]);
    const order: string[] = [];
    it.tools.script = async (call) => {
      const isSlow = call.arguments.includes("slow");
      if (isSlow) await new Promise((resolve) => setTimeout(resolve, 20));
      order.push(isSlow ? "slow" : "fast");
      return outcome({ content: isSlow ? "slow" : "fast" });
    };
    await ran(it);
    assert.deepEqual(order, ["fast", "slow"]);
    const results = changesOf(it, 1)!.splices[0]!.messages.slice(1);
    assert.deepEqual(
      results.map(({ content }) => content),
      ["slow", "fast"],
    );
  });

  it("hands a client's own call back to the client after the server's calls have run", async () => {
    const it = rig([
      [
        [python, { code: "1" }],
        ["get_weather", { city: "Bonn" }],
      ],
    ]);
    const events = await ran(it);
    assert.equal(it.tools.calls.length, 1);
    const call = events.find((event) => event.type === "tool_call");
    assert.equal(call?.type === "tool_call" && call.name, "get_weather");
    assert.equal(call?.type === "tool_call" && call.call, 0, "the client counts its own calls");
    assert.equal(finishOf(events), "tool_calls");
    const saved = it.sessions.updates.at(-1)!;
    assert.deepEqual(
      saved.added.map(({ role }) => role),
      ["assistant", "tool"],
    );
    assert.equal(saved.digests.length, 2);
  });

  it("ends with `length` when the limit of rounds is reached, without running the last calls", async () => {
    const it = rig([[[python, { code: "1" }]], [[python, { code: "2" }]], [[python, { code: "3" }]]]);
    const events = await ran(it, { maxRounds: 2 });
    assert.equal(it.tools.calls.length, 2);
    assert.equal(finishOf(events), "length");
    assert.match(it.sessions.updates.at(-1)!.added.at(-1)!.content, /limit of tool rounds/);
  });

  it("runs no more calls than the request allows", async () => {
    const it = rig([
      [
        [python, { code: "1" }],
        [python, { code: "2" }],
      ],
      [[python, { code: "3" }]],
    ]);
    const events = await ran(it, { maxCalls: 1 });
    assert.equal(it.tools.calls.length, 1);
    assert.match(changesOf(it, 1)!.splices[0]!.messages.at(-1)!.content, /limit of tool calls/);
    assert.equal(finishOf(events), "length");
  });

  it("passes the failure of a generation on as its last event", async () => {
    const it = rig([[[python, { code: "1" }]]]);
    let round = 0;
    const { script } = it.inference;
    it.inference.script = (request) => (round++ === 0 ? script(request) : [[failure("model_failed")]]);
    const events = await ran(it);
    const end = last(events);
    assert.equal(end.type === "error" && end.error.code, "model_failed");
    assert.equal(it.sessions.updates.length, 1, "the result of the first round is kept");
  });

  it("gives a failure of the tools process to the model as the result", async () => {
    const it = rig([[[python, { code: "1" }]], "sorry"]);
    it.tools.script = () => Promise.reject(new Error("the tools process ended"));
    const events = await ran(it);
    assert.match(recordsOf(events)[0]!.result_content, /the tools process ended/);
    assert.equal(finishOf(events), "stop");
  });

  it("reports calls that fail as failed, whatever runs them", async () => {
    const target = createServer((_, response) => response.writeHead(500).end("broken"));
    await new Promise<void>((resolve) => target.listen(0, "127.0.0.1", resolve));
    const { port } = target.address() as AddressInfo;
    const dispatch = { url: `http://127.0.0.1:${port}/`, timeoutMs: 5000, secret: null };
    const spec = { name: "lookup", description: null, parameters: {}, strict: false };
    const about = { source: "mcp", kind: "external", label: "lookup" } as const;
    const result = { status: "timeout", content: "late", images: [] } as const;
    const it = rig(
      [
        [
          [python, { code: "1" }],
          ["service_read_file", { file_id: "none" }],
          ["service_list_files", {}],
          ["lookup", {}],
          ["get_weather", {}],
        ],
        "done",
      ],
      { dispatch },
      [{ tools: () => [{ spec, about, run: async () => result }] }],
    );
    it.tools.script = () => Promise.reject(new Error("the tools process ended"));
    const events = await ran(it, { serverTools: ["lookup"] });
    target.close();
    const ended = events.flatMap((event) =>
      event.type === "tool_progress" && event.phase === "complete" ? [[event.call.name, event.data.status]] : [],
    );
    assert.deepEqual(Object.fromEntries(ended), {
      [python]: "error",
      service_read_file: "error",
      service_list_files: undefined,
      lookup: "timeout",
      get_weather: "error",
    });
    const errors = recordsOf(events).flatMap(
      ({ result_content: content }) => /"error":"([^"]*)/.exec(content)?.[1] ?? [],
    );
    assert.deepEqual(errors.sort(), ["no file has the id \\", "status 500: broken", "the tools process ended"]);
  });

  it("cancels the running tool at once when the client leaves", async () => {
    const it = rig([[[python, { code: "while True: pass" }]]]);
    it.tools.script = () => new Promise<ToolOutcome>(() => {});
    const leave = new AbortController();
    const events = await ran(
      it,
      {},
      (event) => {
        if (event.type === "tool_progress") setImmediate(() => leave.abort());
      },
      leave.signal,
    );
    assert.equal(it.tools.cancelled.length, 1);
    assert.equal(types(events).includes("done"), false);
    assert.equal(it.inference.runs.length, 1);
  });

  it("stores and announces produced files before the call is complete", async () => {
    const it = rig([[[shell, { commands: ["date > now.txt"] }]], "there"]);
    it.tools.script = ({ round, session, client, turn }) => {
      writeFileSync(join(it.files.stagingFolder, "staged"), "today");
      const source = { tool: shell, round, turn };
      const file = { name: "now.txt", format: "txt", purpose: "agent_output", source, session, client } as const;
      return outcome({ files: [{ ...file, id: null, staged: "staged", failure: null }] });
    };
    const events = await ran(it);
    assert.deepEqual(types(events).slice(2, 5), ["tool_progress", "file", "tool_progress"]);
    const file = events.find((event) => event.type === "file");
    assert.deepEqual(file?.type === "file" && file.inline, { text: "today" });
    assert.deepEqual(recordsOf(events)[0]!.file_ids, [...it.files.stored.keys()]);
    assert.match(recordsOf(events)[0]!.result_content, /"name":"now.txt"/);
  });

  it("gives the files of calls that run in parallel ids of their own", async () => {
    const it = rig([
      [
        [shell, { commands: ["date > a.txt"] }],
        [shell, { commands: ["date > b.txt"] }],
      ],
      "there",
    ]);
    const failure = { code: "not_produced", message: "no" };
    it.tools.script = ({ round, session, client, turn }) => {
      const common = { source: { tool: shell, round, turn }, session, client, purpose: "agent_output" } as const;
      const file = (name: string) => ({ ...common, id: null, name, format: null, staged: null, failure });
      return outcome({ files: [file("x"), file("y")] });
    };
    const events = await ran(it);
    const ids = recordsOf(events).flatMap(({ file_ids = [] }) => file_ids);
    assert.deepEqual(ids.map((id) => /^file_[0-9a-f]{16}_r0_(\d)$/.exec(id)?.[1]).sort(), ["0", "1", "2", "3"]);
  });
});

/** Resolves when a run waits for an approval decision. While it waits, it has a timer on the clock. */
async function waits(clock: FakeClock): Promise<void> {
  while (clock.pendingCount === 0) await settled();
}

describe("approvals of the agent loop", () => {
  const asks = { permission: "ask" } as const;
  const approve = {
    decision: "approve",
    message: null,
    rememberForSession: false,
    content: null,
    arguments: null,
  } as const;

  it("pauses the run until the call is approved", async () => {
    const it = rig([[[python, { code: "2" }]], "two"]);
    const events = await ran(it, asks, (event) => {
      if (event.type !== "approval") return;
      assert.equal(it.tools.calls.length, 0);
      assert.deepEqual(event.request.arguments, { code: "2" });
      assert.deepEqual(it.loop.pending(event.request.session_id), [event.request]);
      setTimeout(() => assert.equal(it.loop.decide(event.request.approval_id, approve), "resolved"), 5);
    });
    assert.equal(it.tools.calls.length, 1);
    assert.equal(finishOf(events), "stop");
  });

  it("takes an answer that comes before the run waits", async () => {
    const it = rig([[[python, { code: "2" }]], "two"]);
    await ran(it, asks, (event) => {
      if (event.type === "approval") assert.equal(it.loop.decide(event.request.approval_id, approve), "queued");
    });
    assert.equal(it.tools.calls.length, 1);
  });

  it("gives the model the message of a denial", async () => {
    const it = rig([[[python, { code: "2" }]], "fine"]);
    const events = await ran(it, asks, (event) => {
      if (event.type !== "approval") return;
      const denial = { ...approve, decision: "deny", message: "not today" } as const;
      setTimeout(() => it.loop.decide(event.request.approval_id, denial), 5);
    });
    assert.equal(it.tools.calls.length, 0);
    assert.equal(recordsOf(events)[0]!.result_content, "not today");
  });

  it("runs the arguments that the user has put in place of the model's, and tells the model", async () => {
    const it = rig([[[python, { code: "2" }]], "two"]);
    const edited = JSON.stringify({ code: "3" });
    const events = await ran(it, asks, (event) => {
      if (event.type === "approval") it.loop.decide(event.request.approval_id, { ...approve, arguments: edited });
    });
    assert.deepEqual(
      it.tools.calls.map(({ arguments: args }) => args),
      [edited],
    );
    const [record] = recordsOf(events);
    assert.equal(record?.arguments, edited);
    assert.match(
      record?.result_content ?? "",
      /^The user edited this call before it ran.*\{"code":"3"\}\nIts result: /,
    );
  });

  it("waits for ever if the settings say so", async () => {
    const it = rig([[[python, { code: "2" }]], "fine"], { approvalLimitMs: null });
    await ran(it, asks, (event) => {
      if (event.type !== "approval") return;
      const { approval_id: id } = event.request;
      setTimeout(() => void it.clock.advance(100 * approvalTimeoutMs).then(() => it.loop.decide(id, approve)), 5);
    });
    assert.equal(it.tools.calls.length, 1);
  });

  it("denies a call that nobody answers for five minutes", async () => {
    const it = rig([[[python, { code: "2" }]], "fine"]);
    let id = "";
    const events = await ran(it, asks, (event) => {
      if (event.type !== "approval") return;
      id = event.request.approval_id;
      void waits(it.clock)
        .then(() => it.clock.advance(approvalTimeoutMs - 1))
        .then(() => it.clock.advance(1));
    });
    assert.equal(recordsOf(events)[0]!.result_content, "Approval timed out.");
    assert.equal(it.loop.decide(id, approve), "not_found");
  });

  it("asks no more in the session after an approval that is to be remembered", async () => {
    const it = rig([[[python, { code: "1" }]], [[python, { code: "2" }]], "done"]);
    let asked = 0;
    await ran(it, asks, (event) => {
      if (event.type !== "approval") return;
      asked++;
      it.loop.decide(event.request.approval_id, { ...approve, rememberForSession: true });
    });
    assert.equal(asked, 1);
    assert.equal(it.tools.calls.length, 2);
    assert.equal(it.sessions.updates.at(-1)!.approvesAll, true);
  });

  it("remembers such an approval before the call runs, because the user may interrupt it", async () => {
    const it = rig([[[python, { code: "1" }]]]);
    it.tools.script = () => {
      assert.deepEqual(
        it.sessions.updates.map(({ approvesAll }) => approvesAll),
        [true],
      );
      return outcome();
    };
    const events = await ran(it, asks, (event) => {
      if (event.type !== "approval") return;
      it.loop.decide(event.request.approval_id, { ...approve, rememberForSession: true });
    });
    assert.equal(recordsOf(events)[0]?.result_content, outcome().content);
  });

  it("lets several calls wait for their own answers", async () => {
    const it = rig([
      [
        [python, { code: "1" }],
        [shell, { commands: ["ls"] }],
      ],
      "done",
    ]);
    const requests: string[] = [];
    await ran(it, asks, (event) => {
      if (event.type !== "approval") return;
      requests.push(event.request.approval_id);
      if (requests.length < 2) return;
      setTimeout(() => {
        it.loop.decide(requests[1]!, approve);
        it.loop.decide(requests[0]!, { ...approve, decision: "deny" });
      }, 5);
    });
    assert.deepEqual(
      it.tools.calls.map(({ tool }) => tool),
      ["shell"],
    );
  });

  it("refuses every call by the policy of the server, whatever the request asks", async () => {
    const it = rig([[[python, { code: "1" }]], "fine"], { permission: "deny" });
    const events = await ran(it, { permission: "auto" });
    assert.equal(recordsOf(events)[0]!.result_content, "Python code was denied by policy.");
  });

  it("refuses to ask in a response that is not streamed", async () => {
    const events = await ran(rig(["x"], { permission: "ask" }), { isStreamed: false });
    const [error] = events;
    assert.equal(error?.type === "error" && error.error.param, "agent_permission");
  });

  it("forgets what a cancelled run waited for", async () => {
    const it = rig([[[python, { code: "1" }]]]);
    const leave = new AbortController();
    let id = "";
    await ran(
      it,
      asks,
      (event) => {
        if (event.type !== "approval") return;
        id = event.request.approval_id;
        setTimeout(() => leave.abort(), 5);
      },
      leave.signal,
    );
    assert.equal(it.loop.decide(id, approve), "not_found");
  });
});

describe("sessions of the agent loop", () => {
  const hidden = [
    { role: "assistant", content: "", toolCalls: [{ id: "c", name: python, arguments: "{}" }] },
    { role: "tool", content: "4", toolCallId: "c" },
    { role: "assistant", content: "four" },
  ];
  const splices = [{ at: 1, remove: 1, messages: hidden }];
  const head = { id: "sess_1", turns: 1, digests: ["a", "b"], files: [], approvesAll: true };

  it("continues with the messages that the client does not see", async () => {
    const it = rig(["eight"]);
    it.sessions.matched = { head, common: 2, splices, lastCalls: [] };
    const events = await ran(it, { digests: ["a", "b", "c"] });
    assert.equal(events[0]?.type === "session" && events[0].id, "sess_1");
    assert.deepEqual(changesOf(it, 0)!.splices, splices);
    assert.equal(it.sessions.updates.at(-1)!.turns, 2);
  });

  it("makes a branch with its own id when the client has edited a message, and asks again there", async () => {
    const it = rig([[[python, { code: "1" }]], "eight"], { permission: "ask" });
    it.sessions.matched = { head, common: 1, splices: [], lastCalls: [] };
    let asked = 0;
    const events = await ran(it, { digests: ["a", "x"] }, (event) => {
      if (event.type !== "approval") return;
      asked++;
      it.loop.decide(event.request.approval_id, {
        decision: "deny",
        message: null,
        rememberForSession: false,
        content: null,
        arguments: null,
      });
    });
    assert.notEqual(events[0]?.type === "session" && events[0].id, "sess_1");
    assert.equal(it.sessions.updates[0]!.basedOn, "sess_1");
    assert.equal(asked, 1);
  });

  it("makes a branch when another run continues the same conversation without an id", async () => {
    const it = rig([[[python, { code: "1" }]], "eight", "nine"]);
    it.sessions.matched = { head, common: 2, splices, lastCalls: [] };
    const sessions: string[] = [];
    const ask = async (sessionId: string | null) => {
      const events = await ran(it, { digests: ["a", "b", "c"], sessionId });
      if (events[0]?.type === "session") sessions.push(events[0].id);
    };
    const other = outcome();
    let named = Promise.resolve();
    it.tools.script = async () => {
      await ask(null);
      // A request that names the session waits for the run that uses it.
      named = ask("sess_1");
      return other;
    };
    await ask(null);
    await named;
    assert.equal(sessions.length, 3);
    assert.notEqual(sessions[0], "sess_1");
    assert.deepEqual(sessions.slice(1), ["sess_1", "sess_1"]);
    await ask(null);
    assert.equal(sessions[3], "sess_1");
  });

  it("stores the results before their event is sent", async () => {
    const it = rig([[[python, { code: "1" }]], "one"]);
    await ran(it, {}, (event) => {
      if (event.type !== "tool_progress" || event.phase !== "complete") return;
      assert.deepEqual(
        it.sessions.updates.at(-1)!.added.map(({ role }) => role),
        ["assistant", "tool"],
      );
    });
  });

  it("stores a result for every call of a round, in the order of the calls, while calls still run", async () => {
    const calls = [1, 2, 3].map((number) => [python, { code: `${number}` }] as const);
    const it = rig([calls, "done"]);
    it.tools.script = async (call) => {
      if (!call.arguments.includes("2")) await new Promise((resolve) => setTimeout(resolve, 20));
      return outcome({ content: "known" });
    };
    await ran(it);
    const [first] = it.sessions.updates;
    assert.deepEqual(
      first!.added.map(({ toolCallId, content }) => [toolCallId, /known|interrupted/.exec(content)?.[0]]),
      [
        [undefined, undefined],
        ["call_1_0", "interrupted"],
        ["call_1_1", "known"],
        ["call_1_2", "interrupted"],
      ],
    );
  });

  it("adds each image of its tools to the session once", async () => {
    const it = rig([[[python, { code: "1" }]], [[python, { code: "2" }]], "two figures"]);
    it.sessions.matched = { head, common: 1, splices: [], lastCalls: [] };
    it.tools.script = (call) => outcome({ images: [call.arguments] });
    await ran(it, { digests: ["a", "x"] });
    assert.deepEqual(
      it.sessions.updates.map(({ id, basedOn, images }) => [basedOn === id ? "itself" : basedOn, images]),
      [
        ["sess_1", ['{"code":"1"}']],
        ["itself", ['{"code":"2"}']],
        ["itself", []],
      ],
    );
  });

  it("mounts the files of the conversation and describes them in the prompt", async () => {
    const it = rig(["ok"]);
    const content = new TextEncoder().encode("a,b\n1,2\n");
    await ran(it, { inputFiles: [{ message: 0, name: "t.csv", content }] });
    assert.deepEqual(
      it.tools.mounted[0]!.files.map(({ name }) => name),
      ["t.csv"],
    );
    assert.match(changesOf(it, 0)!.notes[0]!.text, /^\[File "t.csv", id file-[0-9a-f]{32}, text\/plain, 8 bytes\]/);
  });

  it("mounts a file that is named often once, and refuses more files than the limit", async () => {
    const it = rig(["ok"]);
    const content = new TextEncoder().encode("a,b\n1,2\n");
    const files = (count: number) => Array.from({ length: count }, () => ({ message: 0, name: "t.csv", content }));
    await ran(it, { inputFiles: files(3) });
    assert.equal(it.tools.mounted[0]!.files.length, 1);
    const events = await ran(rig(["ok"]), { inputFiles: files(257) });
    const [first] = events;
    assert.ok(first?.type === "error", JSON.stringify(first));
    assert.match(first.error.message, /at most 256 files in a request, got 257/);
  });

  it("refuses a file that is not there", async () => {
    const events = await ran(rig(["ok"]), { inputFiles: [{ message: 0, id: "file-none" }] });
    assert.equal(events[0]?.type === "error" && events[0].error.param, "file_id");
  });
});

describe("the events of a run", () => {
  it("end without an error when the client leaves before the model begins", async () => {
    const it = rig(["x"]);
    const batches = it.loop.run(requestOf(), optionsOf(), AbortSignal.abort());
    const events: AgentEvent[] = [];
    for await (const batch of batches) events.push(...batch);
    assert.deepEqual(events, []);
  });
});
