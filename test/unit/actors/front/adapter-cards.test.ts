import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { adapterCards, cardNamed } from "../../../../actors/api/adapter-cards.ts";

function model(id: string, ...aliases: string[]) {
  return { id, adapters: aliases.map((alias) => ({ alias, generation: "0".repeat(64), createdAt: 1 })) };
}

const ids = (...models: readonly ReturnType<typeof model>[]) => adapterCards(models).map(({ id }) => id);

describe("the cards of adapters", () => {
  it("are named after model and alias, in the order of both", () => {
    assert.deepEqual(ids(model("a", "x", "y"), model("b"), model("c", "x")), ["a::x", "a::y", "c::x"]);
  });

  it("escape characters that have a meaning in the name", () => {
    assert.deepEqual(ids(model("org/m:1", "a::b", "100%", "#", "größe 😀")), [
      "org/m%3A1::a%3A%3Ab",
      "org/m%3A1::100%25",
      "org/m%3A1::%23",
      "org/m%3A1::größe 😀",
    ]);
  });

  it("get a number if a model has the name already", () => {
    assert.deepEqual(ids(model("m", "a", "b"), model("m::a"), model("m::a#2")), ["m::a#3", "m::b"]);
  });

  it("are found by id, or by an alias that only one model has", () => {
    const models = [model("a", "x", "both"), model("b", "both", "a::x")];
    assert.equal(cardNamed("a::x", models)?.modelId, "a");
    assert.equal(cardNamed("x", models)?.id, "a::x");
    assert.equal(cardNamed("b::both", models)?.modelId, "b");
    for (const name of ["both", "nobody", "", "a", "b::x", "A::X"]) assert.equal(cardNamed(name, models), null, name);
  });

  it("never have the same name twice or that of a model, and each is found by its name", () => {
    const name = fc.string({ unit: fc.constantFrom(":", "#", "%", "2", "a", "3A"), minLength: 1, maxLength: 6 });
    const some = fc.uniqueArray(fc.record({ id: name, aliases: fc.uniqueArray(name, { maxLength: 4 }) }), {
      selector: ({ id }) => id,
      maxLength: 4,
    });
    fc.assert(
      fc.property(some, (given) => {
        const models = given.map(({ id, aliases }) => model(id, ...aliases));
        const all = [...models.map(({ id }) => id), ...ids(...models)];
        assert.equal(new Set(all).size, all.length, all.join(" "));
        for (const card of adapterCards(models)) assert.deepEqual(cardNamed(card.id, models), card);
      }),
    );
  });
});
