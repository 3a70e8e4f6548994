// Ends of agent runs: what happens to the pending calls, the approvals and the stored session. Also tests the files,
// names and ids of calls.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, describe, it } from "node:test";
import type { AgentEvent } from "../../../../actors/api/agent/agents.ts";
import { fileLimits } from "../../../../actors/api/agent/files.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { outcome } from "./parts.ts";
import { createRig, optionsOf, type Rig, ran, requestOf, type Turn } from "./rig.ts";

const python = "service_execute_python";
const shell = "service_shell";

const rigs: Rig[] = [];
function rig(...given: Parameters<typeof createRig>): Rig {
  const created = createRig(...given);
  rigs.push(created);
  return created;
}
afterEach(() => {
  for (const { files } of rigs.splice(0)) files.dispose();
});

const approve = {
  decision: "approve",
  message: null,
  rememberForSession: false,
  content: null,
  arguments: null,
} as const;
const never = () => new Promise<never>(() => {});
const errorOf = (events: readonly AgentEvent[]) =>
  events.flatMap((one) => (one.type === "error" ? [one.error.code] : []));
const finishOf = (events: readonly AgentEvent[]) => events.find((event) => event.type === "finish")?.reason;

describe("a run that fails", () => {
  it("cancels its other calls", async () => {
    const it = rig([
      [
        [python, { code: "1" }],
        [shell, { commands: ["sleep 60"] }],
      ],
    ]);
    it.tools.script = ({ tool }) => (tool === "shell" ? never() : outcome());
    it.sessions.update = () => Promise.reject(new ServerError("peer_gone", "the state thread has ended"));
    assert.deepEqual(errorOf(await ran(it)), ["peer_gone"]);
    assert.equal(it.tools.cancelled.length, 1);
    assert.match(it.tools.cancelled[0] ?? "", /call_1_1$/);
  });

  it("takes its approvals back", async () => {
    const it = rig([
      [
        [python, { code: "1" }],
        [shell, { commands: ["rm x"] }],
      ],
    ]);
    it.sessions.update = () => Promise.reject(new ServerError("peer_gone", "the state thread has ended"));
    const asked: string[] = [];
    const events = await ran(it, { permission: "ask" }, (event) => {
      if (event.type !== "approval") return;
      asked.push(event.request.approval_id);
      if (asked.length === 2) it.loop.decide(asked[0]!, approve);
    });
    assert.deepEqual(errorOf(events), ["peer_gone"]);
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(it.loop.decide(asked[1]!, approve), "not_found");
    assert.equal(it.tools.calls.length, 1);
  });
});

describe("a run whose session is deleted", () => {
  it("ends with an error, cancels its calls and stores nothing more", async () => {
    const it = rig([[[python, { code: "1" }]], "one"]);
    it.tools.script = never;
    const events = await ran(it, { sessionId: "mine" }, (event) => {
      if (event.type === "tool_progress") void it.loop.forget("mine");
    });
    assert.deepEqual(errorOf(events), ["cancelled"]);
    assert.equal(it.tools.cancelled.length, 1);
    assert.deepEqual(it.sessions.updates, []);
  });

  it("waits for the state that is being stored, so that it is not stored after the session is deleted", async () => {
    const it = rig([[[python, { code: "1" }]], "one"]);
    let stored = (): void => {};
    const storing = new Promise<void>((resolve) => {
      stored = resolve;
    });
    let began = (): void => {};
    const update = new Promise<void>((resolve) => {
      began = resolve;
    });
    it.sessions.update = () => {
      began();
      return storing;
    };
    const events = ran(it, { sessionId: "mine" });
    await update;
    let isForgotten = false;
    const forgotten = it.loop.forget("mine").then(() => {
      isForgotten = true;
    });
    for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve));
    assert.equal(isForgotten, false);
    stored();
    await forgotten;
    assert.deepEqual(errorOf(await events), ["cancelled"]);
  });

  it("is not disturbed by the end of another session", async () => {
    const it = rig([[[python, { code: "1" }]], "one"]);
    const events = await ran(it, { sessionId: "mine" }, () => void it.loop.forget("other"));
    assert.equal(events.at(-1)?.type, "done");
  });

  it("is deleted also while the tools restart", async () => {
    const it = rig([]);
    it.tools.closeSession = () => Promise.reject(new ServerError("peer_gone", "the tools have ended"));
    await it.loop.forget("mine");
  });
});

describe("a run that is cancelled while an approval of all actions is stored", () => {
  it("does not run the call", async () => {
    const it = rig([[[shell, { commands: ["rm x"] }]], "done"]);
    const stop = new AbortController();
    it.sessions.update = async () => {
      await Promise.resolve();
      stop.abort();
    };
    const decide = (event: AgentEvent): void => {
      if (event.type === "approval")
        it.loop.decide(event.request.approval_id, { ...approve, rememberForSession: true });
    };
    await ran(it, { permission: "ask" }, decide, stop.signal);
    assert.deepEqual(it.tools.calls, []);
  });
});

describe("runs whose requests name one session", () => {
  it("run one after another, in the order in which they came, because each stores the whole session", async () => {
    const it = rig(["one", "two", "three"]);
    const order: string[] = [];
    const run = async (name: string, signal?: AbortSignal) => {
      const onEvent = ({ type }: AgentEvent) => {
        if (type === "session" || type === "done") order.push(`${name} ${type}`);
      };
      return await ran(it, { sessionId: "mine" }, onEvent, signal);
    };
    const gone = new AbortController();
    const runs = [run("a"), run("b"), run("gone", gone.signal), run("c")];
    gone.abort();
    const events = await Promise.all(runs);
    assert.deepEqual(order, ["a session", "a done", "b session", "b done", "c session", "c done"]);
    assert.deepEqual(events[2], []);
    assert.equal(it.sessions.updates.length, 3);
  });
});

describe("files of a call", () => {
  const files = (it: Rig, sizes: readonly number[]) =>
    sizes.map((size, i) => {
      writeFileSync(join(it.files.stagingFolder, `staged-${i}`), "x".repeat(size));
      const source = { tool: "shell", round: 0, turn: 0 };
      const common = { id: null, format: null, purpose: "agent_output", source, session: "s", client: "c" } as const;
      return { ...common, name: `${i}.txt`, staged: `staged-${i}`, failure: null };
    });

  it("that cannot be stored are errors for the model, and the run goes on", async () => {
    const it = rig([[[shell, { commands: ["make"] }]], "done"]);
    it.tools.script = () => outcome({ files: files(it, [1, 2]) });
    const add = it.files.add.bind(it.files);
    it.files.add = (file) =>
      file.name === "0.txt" ? Promise.reject(new ServerError("storage_unavailable", "the disk is full")) : add(file);
    const events = await ran(it);
    assert.equal(events.at(-1)?.type, "done");
    const [record] = events.flatMap((one) => (one.type === "tool_progress" && one.record !== null ? [one.record] : []));
    const { files: listed } = JSON.parse(record!.result_content) as { files: Record<string, unknown>[] };
    assert.deepEqual(
      listed.map(({ name, code }) => [name, code]),
      [
        ["1.txt", undefined],
        ["0.txt", "storage_unavailable"],
      ],
    );
  });

  it("are in the events up to a number of bytes, and later ones are only announced", async () => {
    const it = rig([[[shell, { commands: ["make"] }]], "done"]);
    const size = fileLimits.maxInlineRunBytes / 2 - 1;
    it.tools.script = () => outcome({ files: files(it, [size, size, size, 2]) });
    const events = await ran(it);
    assert.deepEqual(
      events.flatMap((one) => (one.type === "file" ? [one.inline !== null] : [])),
      [true, true, false, true],
    );
  });
});

describe("calls of a run", () => {
  it("are the client's if their feature is not enabled, whatever their name", async () => {
    const it = rig([[[shell, { commands: ["id"] }]]]);
    const events = await ran(it, { groups: ["code_execution"] });
    assert.equal(finishOf(events), "tool_calls");
    assert.ok(events.some(({ type }) => type === "tool_call"));
    assert.deepEqual(it.tools.calls, []);
  });

  it("are handed back as such also in the last round", async () => {
    const turn: Turn = [
      [python, { code: "1" }],
      ["get_weather", {}],
    ];
    assert.equal(finishOf(await ran(rig([turn]), { maxRounds: 0 })), "tool_calls");
  });

  it("have ids of their own, also if the model repeats them", async () => {
    const it = rig([[[python, { code: "1" }]], [[python, { code: "2" }]], "done"], {}, () => "functions.python:0");
    const events = await ran(it);
    const ids = events.flatMap((one) =>
      one.type === "tool_progress" && one.phase === "complete" ? [one.call.id] : [],
    );
    assert.equal(ids[0], "functions.python:0");
    assert.equal(new Set(ids).size, 2);
    const [appended] = it.inference.runs[2]!.request.changes!.splices;
    assert.deepEqual(
      appended!.messages.flatMap(({ toolCallId }) => (toolCallId === undefined ? [] : [toolCallId])),
      ids,
    );
  });
});

describe("the output limit of a request", () => {
  it("is the limit of all rounds together; calls after it are not run", async () => {
    const it = rig([[[python, { code: "1" }]], [[python, { code: "2" }]], "never written"]);
    const events: AgentEvent[] = [];
    const request = { ...requestOf(), maxTokens: 8, minTokens: 6 };
    for await (const batch of it.loop.run(request, optionsOf(), new AbortController().signal)) events.push(...batch);
    assert.deepEqual(
      it.inference.runs.map(({ request: { maxTokens, minTokens } }) => [maxTokens, minTokens]),
      [
        [8, 6],
        [4, 4],
      ],
    );
    assert.equal(it.tools.calls.length, 1);
    assert.equal(finishOf(events), "length");
    assert.ok(events.every(({ type }) => type !== "rounds_reached"));
  });
});
