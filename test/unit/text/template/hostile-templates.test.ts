// Hostile chat templates, which a model file could contain. The renderer must be able to compile them.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Renderer } from "../../../../engines/text/template/renderer.ts";
import { hostileTemplate } from "../../../fixtures/hostile/random-grammars.ts";
import { seeded } from "../../../fixtures/schemas/random-text.ts";

it("a random chat template that is slow on purpose can be compiled", () => {
  for (let seed = 1; seed <= 60; seed++) {
    const { value } = hostileTemplate(seeded(seed));
    assert.doesNotThrow(() => new Renderer(String(value), { bos_token: "", eos_token: "" }), `seed ${seed}`);
  }
});

describe("a chat template that creates large values", () => {
  const tokens = { bos_token: "", eos_token: "" };
  const doubled = (value: string) =>
    `{% set ns = namespace(all=${value}) %}{% for i in range(40) %}{% set ns.all = ns.all + ns.all %}{% endfor %}`;
  const greedy = {
    "a long range": "{% for a in range(1000000000) %}x{% endfor %}",
    "a range without an end": "{{ range(0, 'many') }}",
    "a doubled list": doubled("[1, 2]"),
    "a doubled text": doubled("'ab'"),
  };
  for (const [name, source] of Object.entries(greedy)) {
    it(`is refused: ${name}`, () => {
      assert.throws(() => new Renderer(source, tokens).render([]), /expected at most \d+/);
    });
  }

  it("may create the values of Jinja's range within the limit", () => {
    const source = "{{ range(3) }}{{ range(1, 3) }}{{ range(5, 0, -2) }}{{ range(3, 1) }}{{ range(0, 5, 2) }}";
    assert.equal(new Renderer(source, tokens).render([]), "[0, 1, 2][1, 2][5, 3, 1][][0, 2, 4]");
  });
});
