import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { chooseAdapter } from "../../../../../engines/files/hub/choice/adapter-choice.ts";

const peft = (folder = "") => [`${folder}adapter_config.json`, `${folder}adapter_model.safetensors`];
const choose = (paths: readonly string[], wanted: string | null = null) =>
  chooseAdapter(paths, { place: '"acme/lora"', wanted });

function assertRefused(paths: readonly string[], wanted: string | null, message: string | RegExp): void {
  assert.throws(() => choose(paths, wanted), { name: "ServerError", code: "invalid_lora_adapter", message });
}

describe("the adapter of a repository", () => {
  it("is the repository itself, whatever else is in it", () => {
    assert.deepEqual(choose(["README.md", ...peft(), "adapter_model.bin", "x.gguf", ...peft("other/")]), peft());
  });

  it("is the only one there is", () => {
    assert.deepEqual(choose(["README.md", "lora-F16.gguf"]), ["lora-F16.gguf"]);
    assert.deepEqual(choose(["README.md", ...peft("checkpoint/last/")]), peft("checkpoint/last/"));
  });

  it("must be specified if there are several", () => {
    const paths = [...peft("b/"), ...peft("a/"), "c.gguf"];
    assertRefused(paths, null, 'there are several LoRA adapters in "acme/lora"; name one of them: "a", "b", "c.gguf"');
    assert.deepEqual(choose(paths, "a"), peft("a/"));
    assert.deepEqual(choose(paths, "b/"), peft("b/"));
    assert.deepEqual(choose(paths, "c"), ["c.gguf"]);
  });

  it("may be specified by the end of its path if that is unique", () => {
    const paths = [...peft("x/math/"), ...peft("y/math/"), ...peft("y/code/"), ...peft("code/")];
    assertRefused(paths, "math", '"math" fits several LoRA adapters in "acme/lora": "x/math", "y/math"');
    assert.deepEqual(choose(paths, "code"), peft("code/"));
    assert.deepEqual(choose(paths, "y/code"), peft("y/code/"));
  });

  it("that does not exist is rejected with the existing ones and the nearest one", () => {
    assertRefused(
      [...peft("math/"), ...peft("code/")],
      "mth",
      /^there is no LoRA adapter "mth" in .*did you mean "math"\?/,
    );
    assertRefused(peft(), "math", 'there is no LoRA adapter "math" in "acme/lora"; it is one itself');
    assertRefused(
      ["README.md"],
      null,
      'there is no LoRA adapter in "acme/lora": an adapter_config.json with its adapter_model.safetensors, or a .gguf file, is expected',
    );
  });

  it("without supported weights is rejected with the reason", () => {
    const other =
      /has no adapter_model\.safetensors beside its adapter_config\.json; its weights are in another format/;
    assertRefused(["adapter_config.json", "adapter_model.bin"], null, other);
    assertRefused(["adapter_config.json", "adapter_model-00001-of-00002.safetensors"], null, other);
    assertRefused(
      ["a/adapter_config.json", "adapter_model.bin"],
      null,
      '"a" in "acme/lora" has no adapter_model.safetensors beside its adapter_config.json',
    );
    assertRefused(["adapter_model.bin"], null, /, is expected; its weights are in another format/);
  });
});
