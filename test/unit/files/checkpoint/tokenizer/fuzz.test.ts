// Mutated tokenizer files: each is converted, or rejected with an error that names the file. No other error is
// thrown, and no conversion takes long. TOKENIZER_MUTATIONS sets the number of mutations.
import assert from "node:assert/strict";
import { after, describe, it } from "node:test";
import { ServerError } from "../../../../../runtime/errors.ts";
import { byteLevelJson, pieceFile, piecesJson, TokenizerRig, unigramJson, wordPieceJson } from "./tokenizer-rig.ts";

const mutations = Number(process.env.TOKENIZER_MUTATIONS ?? 1_000);
const limitMs = 2_000;

const rig = new TokenizerRig();
after(() => rig.dispose());

/** Returns a generator of integers below a limit. Equal seeds give equal numbers. */
function seededNumbers(seed: number): (limit: number) => number {
  let state = seed >>> 0;
  return (limit) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * limit);
  };
}

const strangers: readonly unknown[] = [
  null,
  true,
  false,
  0,
  -1,
  1.5,
  1e308,
  2 ** 40,
  "",
  "a",
  "\ud800",
  "▁",
  "\0",
  "x".repeat(5000),
  [],
  {},
  [[]],
  [null],
  { type: "Sequence" },
  { type: "NFC" },
  { type: "Split", pattern: { Regex: "(" } },
  { type: "ByteLevel" },
  { type: "Metaspace" },
  ["a", "b"],
  { __proto__: null, constructor: 1 },
];

/** Changes one value somewhere in a JSON value. */
function mutate(root: object, random: (limit: number) => number): void {
  let node = root as Record<string, unknown>;
  for (;;) {
    const keys = Object.keys(node);
    if (keys.length === 0) return;
    const key = keys[random(keys.length)]!;
    const inner = node[key];
    const isInner = typeof inner === "object" && inner !== null;
    if (isInner && random(4) > 0) {
      node = inner as Record<string, unknown>;
      continue;
    }
    const action = random(4);
    if (action === 0) delete node[key];
    else if (action === 1) node[keys[random(keys.length)]!] = inner;
    else node[key] = structuredClone(strangers[random(strangers.length)]);
    return;
  }
}

const files = () => ({
  "tokenizer_config.json": {
    bos_token: "<s>",
    eos_token: { content: "</s>" },
    add_bos_token: true,
    chat_template: [{ name: "default", template: "x" }],
  },
  "special_tokens_map.json": { pad_token: "<pad>" },
  "config.json": { eos_token_id: [1, 2], text_config: { bos_token_id: 1 } },
  "generation_config.json": { eos_token_id: 2 },
});

const pieces = [
  ["<unk>", 0, 2],
  ["<s>", 0, 3],
  ["</s>", 0, 3],
  ["<0x0A>", 0, 6],
  ["▁", -1, 1],
  ["a", -2.5, 1],
] as const;

describe("mutated tokenizer files", () => {
  it(`are converted or refused if they are SentencePiece files (${mutations})`, async () => {
    const whole = [1, 2].map((kind) =>
      pieceFile(pieces, { kind, charactersMap: Uint8Array.of(4, 0, 0, 0, 0, 0, 0, 0, 65, 0) }),
    );
    let refused = 0;
    for (let seed = 0; seed < mutations; seed++) {
      const random = seededNumbers(seed);
      for (let skipped = 0; skipped < 8; skipped++) random(2);
      const bytes = Buffer.from(whole[random(2)]!);
      for (let count = 1 + random(4); count > 0; count--) bytes[random(bytes.length)] = random(256);
      await rig
        .convert({ "tokenizer.model": bytes.subarray(0, bytes.length - random(2) * random(9)) })
        .catch((error) => {
          assert.ok(error instanceof ServerError, `seed ${seed}: ${(error as Error).stack}`);
          assert.equal(error.code, "model_file_invalid", `seed ${seed}`);
          assert.ok(error.message.startsWith(rig.path), `seed ${seed}: ${error.message}`);
          refused++;
        });
    }
    assert.ok(refused > mutations / 4, `${refused} refused`);
  });

  it(`are converted or refused (${mutations})`, async () => {
    const kinds = [byteLevelJson, piecesJson, unigramJson, wordPieceJson];
    const counts = { converted: 0, refused: 0 };
    for (let seed = 0; seed < mutations; seed++) {
      const random = seededNumbers(seed);
      for (let skipped = 0; skipped < 8; skipped++) random(2);
      const all = { "tokenizer.json": kinds[random(kinds.length)]!(), ...files() };
      for (let count = 1 + random(3); count > 0; count--) {
        const target = random(3) > 0 ? all["tokenizer.json"] : Object.values(all)[random(5)]!;
        mutate(target, random);
      }
      const started = performance.now();
      try {
        const { values } = await rig.convert(all, random(3) === 0 ? 300 : null);
        assert.equal((values.get("tokens") as string[]).length, (values.get("token_type") as number[]).length);
        counts.converted++;
      } catch (error) {
        assert.ok(error instanceof ServerError, `seed ${seed}: ${(error as Error).stack}`);
        assert.equal(error.code, "model_file_invalid", `seed ${seed}`);
        assert.match(error.message, /\.json: \S|: no file names the token/, `seed ${seed}`);
        assert.ok(error.message.length < 4_000, `seed ${seed}: ${error.message.length} characters`);
        counts.refused++;
      }
      assert.ok(performance.now() - started < limitMs, `seed ${seed} takes ${performance.now() - started} ms`);
    }
    assert.ok(counts.converted > mutations / 10 && counts.refused > mutations / 10, JSON.stringify(counts));
  });
});
