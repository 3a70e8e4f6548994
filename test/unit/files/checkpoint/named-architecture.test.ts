// User-specified architecture of a model, instead of the one in its file.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { ggufArchitectureNamed } from "../../../../engines/files/checkpoint/architectures/named-architecture.ts";
import { openCheckpoint } from "../../../../engines/files/checkpoint/checkpoint.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { inTemporaryFolder } from "../gguf/gguf-bytes.ts";
import { caseContent, writeFolder } from "./stored-checkpoint.ts";

const unknown = (error: unknown) => {
  assert.ok(error instanceof ServerError && error.code === "config_invalid", String(error));
  return /^arch expects the name of an architecture \(.*llama.*\) or of a class in config\.json; got "baichuan"$/.test(
    error.message,
  );
};

describe("an architecture that the user specifies", () => {
  it("may have mistral.rs's name, that of GGUF, or that of a class", () => {
    const names = [
      "mistral",
      "LlamaForCausalLM",
      "qwen3_5",
      "gpt_oss",
      "gpt-oss",
      "deepseekv3",
      "lfm2_moe",
      "granitehybrid",
    ];
    assert.deepEqual(names.map(ggufArchitectureNamed), [
      ...["llama", "llama", "qwen35", "gpt-oss", "gpt-oss", "deepseek2", "lfm2moe", "granitehybrid"],
    ]);
    assert.throws(() => ggufArchitectureNamed("baichuan"), unknown);
  });

  it("replaces the class in config.json", async () => {
    const { config, tensors } = caseContent("llama");
    await inTemporaryFolder(async (folder) => {
      await writeFolder(folder, { ...config, architectures: ["MyOwnForCausalLM"] }, tensors);
      await assert.rejects(openCheckpoint(folder), /"MyOwnForCausalLM", which cannot be loaded/);
      assert.equal((await openCheckpoint(folder, { architecture: "mistral" })).architecture, "llama");
      await assert.rejects(openCheckpoint(folder, { architecture: "baichuan" }), unknown);
    });
  });
});
