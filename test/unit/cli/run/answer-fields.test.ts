import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { runCommand } from "../../../../cli/run/commands.ts";
import { Conversation } from "../../../../cli/run/conversation.ts";
import { chatRequest } from "../../../../cli/run/generation.ts";
import { transcriptJson } from "../../../../cli/run/transcript.ts";
import { builtInDefaults } from "../../../../engines/sampling-defaults.ts";
import { chatRequestSchema } from "../../../../http/chat/request.ts";

const create = () => {
  const defaults = { ...builtInDefaults, sampling: { ...builtInDefaults.sampling, temperature: 0.6 } };
  return new Conversation(["tiny"], "tiny", new Map(), new Map([["tiny", defaults]]));
};
const requestOf = ({ fields }: Conversation) =>
  chatRequest("tiny", [], { seed: 3, templateArguments: {} }, null, fields);

describe("/set", () => {
  it("sets a field of all later requests, until it is unset", async () => {
    const conversation = create();
    assert.equal(await runCommand("/set temperature 0.2", conversation), "temperature is 0.2");
    await runCommand("/set top-k=5", conversation);
    await runCommand("/set max_tokens 9", conversation);
    const { sampling, maxTokens } = requestOf(conversation);
    assert.deepEqual(
      [sampling.temperature, sampling.topK, sampling.topP, sampling.seed, maxTokens],
      [0.2, 5, null, 3, 9],
    );
    await runCommand("/set temperature default", conversation);
    await runCommand("/set seed 8", conversation);
    const changed = requestOf(conversation).sampling;
    assert.deepEqual([changed.temperature, changed.seed], [null, 8]);
  });

  it("lists the values and the defaults of the model", async () => {
    const conversation = create();
    await runCommand("/set min_p 0", conversation);
    const lines = String(await runCommand("/set", conversation)).split("\n");
    assert.match(lines[0] ?? "", /^temperature +0\.6 \(default\)$/);
    assert.ok(lines.some((line) => /^min_p +0$/.test(line)));
    assert.ok(lines.some((line) => /^max_tokens +the rest of the context \(default\)$/.test(line)));
  });

  it("refuses an unknown name, a value out of range and a missing value, and keeps the fields", async () => {
    const conversation = create();
    await assert.rejects(runCommand("/set temprature 1", conversation), /did you mean "temperature"/);
    await assert.rejects(
      runCommand("/set temperature 3", conversation),
      /temperature: expected a number of at most 2, got 3/,
    );
    await assert.rejects(runCommand("/set top_k many", conversation), /top_k: expected/);
    await assert.rejects(runCommand("/set top_k", conversation), /expects a name and a value/);
    assert.deepEqual(conversation.fields, {});
  });

  it("is part of a saved chat request", async () => {
    const conversation = create();
    await runCommand("/set top_p 0.5", conversation);
    conversation.add({ question: "hi", answer: "hello", isCut: false });
    const saved = JSON.parse(transcriptJson(conversation));
    assert.equal(chatRequestSchema.parse(saved).top_p, 0.5);
  });
});
