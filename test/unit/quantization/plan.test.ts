// Quantization plan: quantization levels, topology files and the resulting type of each tensor.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { parseLevel } from "../../../engines/quantization/plan/levels.ts";
import { parseTopology } from "../../../engines/quantization/plan/topology.ts";
import { planTypes, type TypeOptions } from "../../../engines/quantization/plan/types.ts";

const invalid = (message: RegExp) => ({ code: "config_invalid", message });
const [f32, f16, q4_0, q5_0, q8_0, q4_k, q5_k, q6_k] = [0, 1, 2, 6, 8, 12, 13, 14];

describe("a quantization level", () => {
  it("is a number of bits or a type in any spelling", () => {
    for (const spelled of ["q4k", "Q4_K", "Q4K", 4, "4", "q4-k"]) assert.equal(parseLevel(spelled, "isq").type, q4_k);
    assert.equal(parseLevel("8", "isq").type, q8_0);
    assert.equal(parseLevel("bf16", "isq").type, 30);
  });

  it("stores embeddings and output matrix one level up", () => {
    assert.equal(parseLevel(4, "isq").endsType, q5_k);
    assert.equal(parseLevel("Q6_K", "isq").endsType, q8_0);
    assert.equal(parseLevel("Q8_0", "isq").endsType, q8_0);
  });

  it("of another format stands for the nearest one, with a message", () => {
    const { name, note } = parseLevel("AFQ4", "isq");
    assert.equal(name, "Q4_K");
    assert.match(note ?? "", /AFQ4 is a type of another format; Q4_K/);
    assert.equal(parseLevel("q4k", "isq").note, null);
  });

  it("that is unknown is refused, with the nearest one", () => {
    assert.throws(() => parseLevel("Q4_L", "isq"), invalid(/^isq expects .*got "Q4_L"; did you mean "Q4_\w"/));
    assert.throws(() => parseLevel(7, "isq"), invalid(/2, 3, 4, 5, 6, 8 bits/));
  });
});

const tensors = [
  { name: "token_embd.weight", shape: [512, 1000], type: f16, isMatrix: true },
  { name: "blk.0.attn_q.weight", shape: [512, 512], type: f16, isMatrix: true },
  { name: "blk.0.attn_norm.weight", shape: [512], type: f16, isMatrix: false },
  { name: "blk.0.ffn_down.weight", shape: [96, 512], type: f16, isMatrix: true },
  { name: "blk.1.attn_q.weight", shape: [512, 512], type: f16, isMatrix: true },
  { name: "blk.1.ffn_up_exps.weight", shape: [512, 96, 4], type: f16, isMatrix: true },
];
const plan = (changes: Partial<TypeOptions>) => {
  const options: TypeOptions = { level: null, organization: "default", topology: [], floatType: null, ...changes };
  return [...planTypes(tensors, options).values()];
};

describe("the types of tensors", () => {
  it("are those of the level; rows that do not fit its blocks get another", () => {
    assert.deepEqual(plan({ level: parseLevel(4, "isq") }), [q5_k, q4_k, f32, q5_0, q4_k, q4_k]);
  });

  it("are floats of the requested type without a level", () => {
    assert.deepEqual(plan({ floatType: f32 }), [f32, f32, f32, f32, f32, f32]);
    assert.deepEqual(plan({}), [f16, f16, f32, f16, f16, f16]);
  });

  it("stay unchanged outside of experts with moqe", () => {
    assert.deepEqual(plan({ level: parseLevel(4, "isq"), organization: "moqe" }), [f16, f16, f32, f16, f16, q4_k]);
  });

  it("follow the topology: ranges of layers and expressions, the first that fits", () => {
    const topology = parseTopology('"/attn_q/":\n  isq: Q6K\n0-1:\n  isq: 8\n', "t.yml");
    assert.deepEqual(plan({ topology }), [f16, q6_k, f32, q8_0, q6_k, f16]);
    const ordered = parseTopology('"/ffn_down/":\n  isq: Q6K\n0:\n  isq: 8\n', "t.yml");
    assert.deepEqual(plan({ topology: ordered }), [f16, q8_0, f32, q8_0, f16, f16], "ffn_down fits no block of Q6_K");
    assert.deepEqual(plan({ topology, level: parseLevel("q4_0", "isq") }), [q5_0, q6_k, f32, q8_0, q6_k, q4_0]);
  });
});

describe("a topology file", () => {
  const refused: Readonly<Record<string, [text: string, message: RegExp]>> = {
    "is no YAML": ["a: [", /^the topology file t\.yml: it is not YAML/],
    "is a list": ["- 1", /expected a mapping/],
    "names layers in words": ["first:\n  isq: 4", /"first" expects a layer \(12\), a range/],
    "has an empty range": ["4-4:\n  isq: 4", /the range "4-4" is empty/],
    "has ranges that overlap": ["0-4:\n  isq: 4\n3-6:\n  isq: 8", /"0-4" and "3-6" overlap/],
    "has a wrong expression": ['"/(/":\n  isq: 4', /not a regular expression/],
    "has an unknown level": ["0:\n  isq: 9", /isq of "0" in t\.yml expects/],
    "has an unknown setting": ["0:\n  quant: 4", /unknown setting "quant"/],
    "names a device": ["0:\n  device: cuda[0]", /names a device; layers cannot be placed one by one/],
    "has no settings for a layer": ["0: 4", /"0" expects settings such as/],
    "repeats itself by aliases": ["a: &a [*a, *a]", /alias|Unresolved|it is not YAML/i],
  };
  for (const [name, [text, message]] of Object.entries(refused)) {
    it(`that ${name} is refused`, () => assert.throws(() => parseTopology(text, "t.yml"), invalid(message)));
  }
});
