// The chat templates made to hold a server up are such as a model could bring along: the renderer reads them.
import assert from "node:assert/strict";
import { it } from "node:test";
import { Renderer } from "../../../engines/template/renderer.ts";
import { hostileTemplate } from "../../fixtures/hostile/random-grammars.ts";
import { seeded } from "../../fixtures/schemas/random-text.ts";

it("a random chat template made to be slow can be read", () => {
  for (let seed = 1; seed <= 60; seed++) {
    const { value } = hostileTemplate(seeded(seed));
    assert.doesNotThrow(() => new Renderer(String(value), { bos_token: "", eos_token: "" }), `seed ${seed}`);
  }
});
