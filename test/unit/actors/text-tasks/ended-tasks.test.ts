import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { sealContent } from "../../../../actors/api/sealed-content.ts";
import { type TaskRunner, TextTasks } from "../../../../actors/text-tasks/text-tasks.ts";
import { type GenerateRequest, greedySampling, requestDefaults } from "../../../../engines/generation.ts";
import { TaskEnded } from "../../../../runtime/task/task.ts";

const { signal } = new AbortController();
const refused = { code: "unsupported" };

/** Returns text tasks whose workers exit in the given phase, and the list of started tasks. */
function endingTasks(phase: string) {
  const started: string[] = [];
  const runner = {
    run: async ({ kind }) => {
      started.push(kind);
      throw new TaskEnded("time", phase);
    },
  } as Partial<TaskRunner> as TaskRunner;
  return { started, tasks: new TextTasks(runner, { seconds: 10, loadSeconds: 20, heapMiB: 512 }) };
}

function asks(text: string, isSealed = false): GenerateRequest {
  const grammar = { kind: "regex", pattern: "a+" } as const;
  const content = { prompt: { kind: "text", text }, grammar, tools: null } as const;
  const said = isSealed ? { prompt: sealContent(content), grammar: null, tools: null } : content;
  return { ...requestDefaults, ...said, model: "m", client: "a", sampling: greedySampling };
}

describe("a text task that was ended", () => {
  it("is not started again", async () => {
    const { tasks, started } = endingTasks("messages");
    for (let i = 0; i < 3; i++) await assert.rejects(tasks.prepare("k", asks("one"), signal), refused);
    await assert.rejects(tasks.prepare("k", asks("two"), signal), refused);
    assert.equal(started.length, 2);
  });

  it("is not started again with another prompt if its grammar was the reason", async () => {
    const { tasks, started } = endingTasks("grammar");
    await assert.rejects(tasks.prepare("k", asks("one"), signal), refused);
    await assert.rejects(tasks.prepare("k", asks("two"), signal), refused);
    await assert.rejects(tasks.prepare("k", asks("three", true), signal), refused);
    assert.deepEqual(started, ["prepare"]);
    // countTokens() does not use the grammar, so its task is started although the grammar is refused.
    await assert.rejects(tasks.countTokens("k", asks("one"), signal), refused);
    assert.deepEqual(started, ["prepare", "count"]);
  });
});
