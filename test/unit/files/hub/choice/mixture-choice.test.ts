import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { chooseMixture } from "../../../../../engines/files/hub/choice/mixture-choice.ts";

const peft = (folder: string) => [`${folder}/adapter_config.json`, `${folder}/adapter_model.safetensors`];
const xlora = (folder = "") => [`${folder}xlora_classifier.safetensors`, `${folder}xlora_config.json`];
const choose = (paths: readonly string[], wanted: string | null = null) =>
  chooseMixture(paths, { place: '"acme/xlora"', wanted });

function assertRefused(paths: readonly string[], wanted: string | null, message: string): void {
  assert.throws(() => choose(paths, wanted), { name: "ServerError", code: "invalid_lora_adapter", message });
}

describe("the X-LoRA of a repository", () => {
  it("is its classifier first, all adapters in folders, and its config last", () => {
    const [classifier = "", config = ""] = xlora();
    const others = ["README.md", "model.gguf", "two/optimizer.pt", "three/adapter_config.json"];
    assert.deepEqual(choose([...others, config, ...peft("two"), ...peft("a/one"), classifier]), [
      classifier,
      ...peft("a/one"),
      ...peft("two"),
      config,
    ]);
  });

  it("may lie in a folder, which is named where there are several", () => {
    const [classifier = "", config = ""] = xlora("x/");
    assert.deepEqual(choose([...xlora("x/"), ...peft("x/a"), ...peft("b")]), [classifier, ...peft("x/a"), config]);
    const both = [...xlora("x/"), ...peft("x/a"), ...xlora("y/")];
    assert.deepEqual(choose(both, "x/"), [classifier, ...peft("x/a"), config]);
    assert.deepEqual(choose([...both, ...xlora()]).at(-1), "xlora_config.json");
    assertRefused(both, null, 'there are several X-LoRAs in "acme/xlora"; name one of them: "x", "y"');
    assertRefused(both, "z", 'there is no z/xlora_config.json in "acme/xlora": "x", "y"');
  });

  it("is refused where it is not there, or not whole", () => {
    assertRefused(peft("a"), null, 'there is no X-LoRA in "acme/xlora": xlora_config.json is expected');
    assertRefused(["xlora_config.json"], null, 'there is no xlora_classifier.safetensors in "acme/xlora"');
  });
});
