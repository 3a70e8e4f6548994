// vLLM completions: requests as vLLM documents them, and responses with token ids and logprobs.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { greedySampling } from "../../../../engines/generation.ts";
import { completions } from "../../../../engines/remote/completions.ts";
import type { UpstreamRequest } from "../../../../engines/remote/upstream.ts";
import { vllmTokens } from "../../../fixtures/remote/stand-in.ts";

const vllm = completions({ grammar: "ebnf", hasDry: false });
const request: UpstreamRequest = {
  ...{ model: "far", prompt: [5, 6], maxTokens: 9, minTokens: 0, ignoreEos: false, stopTokens: [] },
  ...{ sampling: greedySampling, seed: null, grammar: null },
};
const bodyOf = (changes: Partial<UpstreamRequest>) => JSON.parse(vllm.body({ ...request, ...changes }));

describe("a request to vLLM", () => {
  it("has the prompt as tokens, requests token ids, and leaves no default to the server", () => {
    assert.deepEqual(bodyOf({}), {
      ...{
        model: "far",
        prompt: [5, 6],
        stream: true,
        stream_options: { include_usage: true },
        return_token_ids: true,
      },
      ...{ max_tokens: 9, temperature: 0, top_k: -1, top_p: 1, min_p: 0, repetition_penalty: 1 },
      ...{ presence_penalty: 0, frequency_penalty: 0 },
    });
    const sampling = { ...greedySampling, topK: 5, topLogprobs: 2, logitBias: [[7, 1.5]] as const };
    const { min_tokens, ignore_eos, stop_token_ids, seed, top_k, logprobs, logit_bias, structured_outputs } = bodyOf({
      ...{ sampling, minTokens: 2, ignoreEos: true, stopTokens: [3], seed: 4, grammar: 'root ::= "x"' },
    });
    assert.deepEqual([min_tokens, ignore_eos, stop_token_ids, seed, top_k, logprobs], [2, true, [3], 4, 5, 2]);
    assert.deepEqual([logit_bias, structured_outputs], [{ 7: 1.5 }, { grammar: 'root ::= "x"' }]);
  });

  it("rejects a DRY penalty with a specific error", () => {
    const dry = { multiplier: 1, base: 2, allowedLength: 2, sequenceBreakers: [] };
    assert.throws(() => bodyOf({ sampling: { ...greedySampling, dry } }), {
      code: "unsupported",
      param: "dry_multiplier",
    });
  });
});

describe("a response of vLLM", () => {
  it("gives tokens, logprobs by token id, the end and the cached tokens", () => {
    const reader = vllm.reader({ ...request, sampling: { ...greedySampling, topLogprobs: 2 } });
    const logprobs = {
      tokens: ["token_id:7"],
      token_logprobs: [-1.5],
      top_logprobs: [{ "token_id:7": -1.5, "token_id:9": -0.5, "token_id:8": -0.75 }],
    };
    const top = [[9, -0.5] as const, [8, -0.75] as const];
    assert.deepEqual(reader.read(vllmTokens([7], "stop", logprobs)), {
      ...{ tokens: [7], end: "stop", cachedTokens: null },
      logprobs: [{ chosen: -1.5, top }],
    });
    const usage = { prompt_tokens: 9, completion_tokens: 1, prompt_tokens_details: { cached_tokens: 8 } };
    assert.equal(reader.read({ choices: [], usage }).cachedTokens, 8);
  });

  it("is invalid if token ids are missing or not numbers", () => {
    const reader = vllm.reader({ ...request, sampling: { ...greedySampling, topLogprobs: 0 } });
    assert.throws(() => reader.read(vllmTokens([1.5])), { kind: "garbage" });
    const texts = { tokens: ["x"], token_logprobs: [-1], top_logprobs: [{ x: -1 }] };
    assert.throws(() => reader.read(vllmTokens([7], null, texts)), {
      kind: "garbage",
      message: /return_tokens_as_token_ids/,
    });
    assert.throws(() => reader.read({ error: { message: "engine dead" } }), { kind: "failed", message: "engine dead" });
  });
});
