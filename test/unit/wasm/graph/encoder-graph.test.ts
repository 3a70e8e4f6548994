import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import type { GgufValue } from "../../../../engines/files/gguf/cursor.ts";
import { readTensorTable } from "../../../../engines/files/gguf/tensors.ts";
import { findArchitecture } from "../../../../engines/wasm/graph/architectures/registry.ts";
import { buildGraph, type Graph } from "../../../../engines/wasm/graph/graph.ts";
import { readHyperparameters } from "../../../../engines/wasm/graph/hyperparameters.ts";
import { tinyModel } from "../../../fixtures/models/models.ts";
import { type TinyEncoderOptions, writeTinyEncoder } from "../../../fixtures/models/tiny-encoder.ts";

let folder = "";
before(() => {
  folder = mkdtempSync(join(tmpdir(), "troupe-encoder-graph-"));
});
after(() => rmSync(folder, { recursive: true, force: true }));

/** Returns the graph of a file with changed keys; undefined removes a key. */
async function graphOf(path: string, changes: Readonly<Record<string, GgufValue | undefined>>): Promise<Graph> {
  const table = await readTensorTable(path);
  const architecture = findArchitecture(String(table.fields.get("general.architecture")));
  const fields = new Map(table.fields);
  for (const [key, value] of Object.entries(changes)) {
    if (value === undefined) fields.delete(`${architecture.name}.${key}`);
    else fields.set(`${architecture.name}.${key}`, value);
  }
  const changed = { ...table, fields };
  const shape = readHyperparameters(architecture, changed, { always: null, short: null, long: null });
  return buildGraph(architecture, shape, changed);
}

async function encoderGraph(
  options: Omit<TinyEncoderOptions, "seed">,
  changes: Readonly<Record<string, GgufValue | undefined>> = {},
): Promise<Graph> {
  const path = join(folder, "encoder.gguf");
  await writeTinyEncoder(path, { seed: 1, layers: 4, ...options });
  return graphOf(path, changes);
}

const bert = { architecture: "bert", pooling: "mean" } as const;
const modern = { architecture: "modern-bert", pooling: "mean", window: 9 } as const;

/** Returns for each layer how many positions its attention sees before and after a token. */
function sides({ layers }: Graph): (readonly [number, number])[] {
  return layers.map((layer) => {
    const attention = layer.find((step) => step.kind === "attention");
    return [attention?.behind ?? 0, attention?.ahead ?? 0];
  });
}

describe("the graph of an encoder", () => {
  const [all, near] = [
    [Infinity, Infinity],
    [4, 4],
  ] as const;

  it("sees half the window to each side in all layers except every third", async () => {
    assert.deepEqual(sides(await encoderGraph(modern)), [all, near, near, all]);
  });

  it("uses the window in the layers that the file names, by a list or a number", async () => {
    const key = "attention.sliding_window_pattern";
    const listed = await encoderGraph(modern, { [key]: [true, false, false, true] });
    assert.deepEqual(sides(listed), [near, all, all, near]);
    assert.deepEqual(sides(await encoderGraph(modern, { [key]: 2 })), [all, near, all, near]);
    assert.deepEqual(sides(await encoderGraph(modern, { [key]: 0 })), [near, near, near, near]);
    assert.deepEqual(sides(await encoderGraph(modern, { "attention.sliding_window": 0 })), [all, all, all, all]);
  });

  it("is rejected if its file does not say that attention is bidirectional, as is a decoder whose file does", async () => {
    const key = "attention.causal";
    await assert.rejects(encoderGraph(bert, { [key]: undefined }), {
      code: "unsupported",
      message: /attention\.causal/,
    });
    await assert.rejects(encoderGraph(bert, { [key]: true }), { code: "unsupported" });
    await assert.rejects(graphOf(await tinyModel(), { [key]: false }), { code: "unsupported" });
    assert.equal((await graphOf(await tinyModel(), { [key]: true })).isEncoder, false);
  });

  it("is refused with an activation that it cannot compute", async () => {
    await assert.rejects(encoderGraph(modern, { hidden_activation: "reglu" }), {
      code: "unsupported",
      message: /reglu/,
    });
  });

  it("has a head only if it scores texts", async () => {
    const scored = await encoderGraph({ ...bert, pooling: "rank", scores: 3 });
    assert.deepEqual([scored.pooling.kind, scored.pooling.length, scored.pooling.head?.output?.rows], ["rank", 3, 3]);
    const { pooling } = await encoderGraph({ ...bert, pooling: "rank" }, { pooling_type: 2 });
    assert.deepEqual([pooling.kind, pooling.length, pooling.head], ["cls", 64, null]);
  });

  it("is rejected for scores without a scoring head", async () => {
    await assert.rejects(encoderGraph(bert, { pooling_type: 4 }), {
      // The error code is `unsupported`, because the file is valid: another engine may be able to generate text with it.
      code: "unsupported",
      message: /cls\.output/,
    });
    const nomic = encoderGraph({ architecture: "nomic-bert", pooling: "rank" });
    await assert.rejects(nomic, { code: "unsupported", message: /pooling_type/ });
    await assert.rejects(encoderGraph(bert, { pooling_type: 9 }), { code: "unsupported" });
  });
});
