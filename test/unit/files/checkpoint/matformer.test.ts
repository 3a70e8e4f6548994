// MatFormer slices: smaller models that are cut from a checkpoint. Tests the files that describe slices, and slices that do not
// fit a model.
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { type Checkpoint, openCheckpoint } from "../../../../engines/files/checkpoint/checkpoint.ts";
import {
  type MatformerSlice,
  readSlice,
  readSlices,
} from "../../../../engines/files/checkpoint/matformer/slice-file.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { inTemporaryFolder } from "../gguf/gguf-bytes.ts";
import { caseContent, writeFolder } from "./stored-checkpoint.ts";

const head = "name,# Layers,# Effective Params (B),MMLU PT accuracy,FFN Hidden Dims,Layers Skipped";

async function slicesOf(text: string): Promise<readonly MatformerSlice[]> {
  return await inTemporaryFolder(async (folder) => {
    await writeFile(join(folder, "slices"), text);
    return await readSlices(join(folder, "slices"));
  });
}

async function sliced(slice: MatformerSlice, name = "gemma3n"): Promise<Checkpoint> {
  const { config, tensors } = caseContent(name);
  return await inTemporaryFolder(async (folder) => {
    await writeFolder(folder, config, tensors);
    return await openCheckpoint(folder, { slice });
  });
}

function refused(code: string, words: RegExp): (error: unknown) => boolean {
  return (error) => {
    assert.ok(error instanceof ServerError, String(error));
    assert.equal(error.code, code, error.message);
    assert.match(error.message, words);
    return true;
  };
}

const all = (length: number, layers: number) => Array.from({ length: layers }, () => length);

describe("a slice file", () => {
  it("may be the table that is published for Gemma 3n", async () => {
    const rows = [
      'Main model,3,3.98,62.30%,"[2_048 * 8, 16384,2_048*4]",',
      '"The ""small"" one, cut",2,1.9,50%,"[4, 4]","[1]"',
      "",
    ];
    assert.deepEqual(await slicesOf(`\uFEFF${[head, ...rows].join("\r\n")}`), [
      { name: "Main model", feedForward: [16_384, 16_384, 8192], skipped: [] },
      { name: 'The "small" one, cut', feedForward: [4, 4], skipped: [1] },
    ]);
  });

  it("may be JSON with the same names", async () => {
    const rows = [
      { name: "a", "FFN Hidden Dims": [8, 4], "Layers Skipped": [3, 2] },
      { name: "b", "FFN Hidden Dims": "[2 * 4]", "Layers Skipped": "" },
    ];
    assert.deepEqual(await slicesOf(JSON.stringify(rows)), [
      { name: "a", feedForward: [8, 4], skipped: [2, 3] },
      { name: "b", feedForward: [8], skipped: [] },
    ]);
  });

  const wrong: readonly (readonly [string, RegExp])[] = [
    ["a,b\n", /its first line lacks the column "name"/],
    [`${head}\n"a" x,1,1,1,[1],`, /line 2 has quotes that do not enclose a field/],
    [`${head}\n"a,1,1,1,[1],`, /line 2 has quotes/],
    [`${head}\na,1,1,1,[1],,,`, /row 1 has 8 fields; its first line has 6/],
    [`${head}\n,1,1,1,[1],`, /a slice has the name ""/],
    [`${head}\na,1,1,1,[x],`, /slice "a" has "FFN Hidden Dims": "\[x\]"; expected a list of up to 1000 whole numbers/],
    [`${head}\na,1,1,1,[2*3*4],`, /FFN Hidden Dims/],
    [`${head}\na,1,1,1,[1e3],`, /FFN Hidden Dims/],
    [`${head}\na,1,1,1,[99999999],`, /from 1 to 16777216/],
    [`${head}\na,2,1,1,[1],`, /expected 2 lengths, one for each layer that is kept/],
    [`${head}\na,1,1,1,[1],[-1]`, /slice "a" has "Layers Skipped"/],
    [`${head}\na,1,1,1,[1],"[3, 3]"`, /expected each layer once/],
    [`${head}\na,1,1,1,[1],\na,1,1,1,[1],`, /two slices with the name "a"/],
    ["[1]", /no list of objects/],
    ["[{]", /no JSON/],
    [" ".repeat(2 ** 20 + 1), /at most 1048576 are read/],
  ];
  for (const [text, words] of wrong) {
    it(`is rejected with the reason: ${words.source}`, async () => {
      await assert.rejects(slicesOf(text), refused("config_invalid", words));
    });
  }

  it("is asked for a slice by its name", async () => {
    await inTemporaryFolder(async (folder) => {
      const path = join(folder, "slices.csv");
      await assert.rejects(readSlice(path, "a"), refused("config_invalid", /cannot be read \(ENOENT\)/));
      await writeFile(path, `${head}\na,1,1,1,[1],\nb,1,1,1,[1],`);
      assert.deepEqual(await readSlice(path, "b"), { name: "b", feedForward: [1], skipped: [] });
      await assert.rejects(readSlice(path, "c"), refused("config_invalid", /slices\.csv: "a", "b"; got "c"/));
    });
  });
});

describe("a slice of a checkpoint", () => {
  it("has fewer layers and shorter feed-forwards", async () => {
    const { tensors, pairs, notes } = await sliced({ name: "s", feedForward: all(512, 21), skipped: [20] });
    const shapes = new Map(
      tensors.map(({ name, shape, rows }) => {
        assert.deepEqual([rows.columns, rows.rows], [shape[0], shape.slice(1).reduce((a, b) => a * b, 1)], name);
        return [name, shape];
      }),
    );
    assert.deepEqual(shapes.get("blk.20.ffn_up.weight"), [64, 512]);
    assert.deepEqual(shapes.get("blk.3.ffn_down.weight"), [512, 64]);
    assert.deepEqual(shapes.get("per_layer_token_embd.weight"), [21 * 256, 288]);
    assert.deepEqual(shapes.get("per_layer_model_proj.weight"), [64, 21 * 256]);
    assert.equal(shapes.has("blk.21.ffn_up.weight"), false);
    const value = (key: string) => pairs.get(`gemma3n.${key}`)?.value;
    assert.deepEqual(["block_count", "feed_forward_length", "attention.shared_kv_layers"].map(value), [21, 512, 1]);
    assert.deepEqual((value("attention.sliding_window_pattern") as boolean[]).slice(18), [true, false, false]);
    assert.deepEqual(notes, []);
  });

  it("says that layers of several lengths take the memory of the longest", async () => {
    const { notes, tensors } = await sliced({
      name: "s",
      feedForward: [...all(512, 7), ...all(1024, 15)],
      skipped: [],
    });
    assert.match(notes[0] ?? "", /^7 of 22 layers have a shorter feed-forward than 1024/);
    assert.deepEqual(tensors.find(({ name }) => name === "blk.3.ffn_down.weight")?.shape, [1024, 64]);
  });

  const misfits: readonly (readonly [string, MatformerSlice, RegExp, string?])[] = [
    [
      "another architecture",
      { name: "s", feedForward: [64], skipped: [] },
      /expects a MatFormer model .* architecture llama/,
      "llama",
    ],
    [
      "a layer with keys of its own",
      { name: "s", feedForward: all(64, 21), skipped: [19] },
      /skips layer 19; only the layers 20 to 21/,
    ],
    ["a layer that is not there", { name: "s", feedForward: all(64, 21), skipped: [22] }, /skips layer 22/],
    ["other layers", { name: "s", feedForward: all(64, 5), skipped: [] }, /5 feed-forward lengths for the 22 layers/],
    [
      "longer feed-forwards",
      { name: "s", feedForward: all(2048, 22), skipped: [] },
      /takes 2048 .* layer 0, which has 1024/,
    ],
    [
      "a part of sparse values",
      { name: "s", feedForward: [300, ...all(1024, 21)], skipped: [] },
      /a whole part of 1024 in the first 10 layers, not 300/,
    ],
  ];
  for (const [what, slice, words, name] of misfits) {
    it(`is refused for ${what}`, async () => {
      const code = /architecture|whole part/.test(words.source) ? "unsupported" : "config_invalid";
      await assert.rejects(sliced(slice, name), refused(code, words));
    });
  }
});
