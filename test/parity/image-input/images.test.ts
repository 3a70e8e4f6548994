// Image input compared with llama.cpp's multimodal library (mtmd): the embeddings of generated projector files of each kind,
// the prompt's tokens, and the logits after a prompt with an image on both engines. The references were computed once
// (mtmd-reference.cpp).
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { Batch, type PromptSpan } from "../../../engines/batch.ts";
import type { ModelSpec } from "../../../engines/engine.ts";
import type { ProjectorKind } from "../../../engines/files/projector/image-rules.ts";
import { cutImage } from "../../../engines/image-input/image-decoder.ts";
import { imageParts, tileGrid } from "../../../engines/image-input/image-tokens.ts";
import { openEngine } from "../../../engines/open-engine.ts";
import { ImageEncoder, type Tile } from "../../../engines/wasm/vision/image-encoder.ts";
import { type TinyVision, writeTinyVision } from "../../fixtures/image-input/tiny-vision.ts";

/** Samples of an array (every `step`th value), and the range of all its values. */
interface Sampled {
  readonly step: number;
  readonly range: number;
  readonly values: readonly number[];
}

interface Reference {
  /** Tokens of the prompt "hello IMAGE world, what is it"; -1 stands for an embedding. */
  readonly tokens: readonly number[];
  readonly embeddings: Sampled;
  readonly logits: Sampled;
}

type TileGrid = NonNullable<PromptSpan["grid"]>;

const kinds = [
  ...(["gemma3", "idefics3", "mlp", "internvl", "resampler", "pixtral"] as const),
  ...(["qwen2vl_merger", "qwen2.5vl_merger", "qwen3vl_merger", "gemma4v", "gemma4uv"] as const),
];
/** Maximum difference between a computed value and its reference, as a fraction of the range of the reference values. */
const tolerance = 0.005;
const source = new URL("../../../../test/fixtures/image-input/mtmd-references.json", import.meta.url);
const references = JSON.parse(readFileSync(source, "utf8")) as Record<ProjectorKind, Reference>;
const folder = mkdtempSync(join(tmpdir(), "troupe-vision-"));
after(() => rmSync(folder, { recursive: true, force: true }));

function assertClose(values: Float32Array, { step, range, values: expected }: Sampled): void {
  assert.equal(Math.ceil(values.length / step), expected.length);
  const differences = expected.map((value, i) => Math.abs(value - (values[i * step] as number)));
  const worst = Math.max(...differences) / range;
  assert.ok(worst <= tolerance, `differs by ${(100 * worst).toFixed(3)} % of the range`);
}

for (const kind of kinds) {
  describe(`projector ${kind}`, () => {
    let files: TinyVision;
    let embeddings: Float32Array;
    let grids: readonly TileGrid[];
    let rules: ImageEncoder["file"]["rules"];
    before(async () => {
      files = await writeTinyVision(folder, kind);
    });

    for (const threads of [1, 2]) {
      it(`computes the embeddings on ${threads} threads`, async () => {
        const encoder = await ImageEncoder.load(files.mmproj, threads);
        try {
          ({ rules } = encoder.file);
          const { grid, tiles: cut } = await cutImage(files.picture, encoder.file.tiling, {
            maxEdge: null,
            client: "test",
            isFrame: false,
          });
          const order = imageParts(rules, { grid }).filter((part) => typeof part === "number");
          const tiles = order.map((tile) => cut[tile] as Tile);
          const parts = tiles.map((tile) => encoder.encode(tile));
          embeddings = Float32Array.from(parts.flatMap((part) => [...part]));
          grids = tiles.map((tile) => tileGrid(rules, tile));
          assertClose(embeddings, references[kind].embeddings);
        } finally {
          encoder.dispose();
        }
      });
    }

    for (const engine of ["wasm", "llama"] as const) {
      it(`computes the logits after a prompt with the image on ${engine}, however it is chunked`, async () => {
        const spec: ModelSpec = {
          ...{ path: files.model, maxSequences: 2, maxBatchTokens: 256, maxModelLength: 512, kvBudget: null },
          ...{
            kvType: "f16",
            blockTokens: 32,
            pagedKv: null,
            extraLogitsRows: 4,
            threads: engine === "wasm" ? 2 : 1,
            mmap: true,
            gpuLayers: 0,
          },
          ...{ abortFlag: null, computeLock: null },
          images: {
            ...rules,
            path: files.mmproj,
            maxEdge: null,
            maxImages: 1,
            maxFrames: 1,
            cacheBytes: 0,
            maxMediaBytesInFlight: 2 ** 30,
          },
        };
        const model = await (await openEngine(engine)).load(spec, () => {});
        try {
          const { tokens: ids, logits: expected } = references[kind];
          const tokens = Int32Array.from(ids);
          const spans = spansOf(tokens, embeddings, grids, rules);
          for (const chunk of [256, 40]) {
            model.kv.reserve(0, tokens.length);
            const batch = new Batch(2, 256);
            let end = 0;
            while (end < tokens.length) {
              const from = end;
              end = chunkEnd(Math.min(tokens.length, from + chunk), from, spans);
              batch.clear();
              batch.addRow(0, tokens, from, end, Number(end === tokens.length), 0);
              batch.embed(spans);
              const { logits, logitsRow } = model.step(batch);
              if (end < tokens.length) continue;
              const { vocabSize } = model.card;
              const first = (logitsRow[0] as number) * vocabSize;
              assertClose(logits.slice(first, first + vocabSize), expected);
            }
            model.kv.release(0);
          }
        } finally {
          model.dispose();
        }
      });
    }
  });
}

/** Returns the image tiles in a prompt: its runs of consecutive embeddings. */
function spansOf(
  tokens: Int32Array,
  embeddings: Float32Array,
  grids: readonly TileGrid[],
  { attendsAhead, hasGridPositions }: ImageEncoder["file"]["rules"],
): PromptSpan[] {
  const width = embeddings.length / tokens.filter((token) => token < 0).length;
  const spans: PromptSpan[] = [];
  for (let from = 0, used = 0; from < tokens.length; from++) {
    if ((tokens[from] as number) >= 0) continue;
    const grid = grids[spans.length] as TileGrid;
    const count = grid.rows * grid.columns;
    const tile = embeddings.subarray(used * width, (used + count) * width);
    spans.push({ from, to: from + count, embeddings: tile, attendsAhead, grid: hasGridPositions ? grid : null });
    used += count;
    from += count - 1;
  }
  return spans;
}

/** Returns the end of a prompt chunk, moved so that it does not split a tile whose embeddings attend to each other. */
function chunkEnd(end: number, from: number, spans: readonly PromptSpan[]): number {
  const cut = spans.find((span) => span.attendsAhead && span.from < end && end < span.to);
  if (cut === undefined) return end;
  return cut.from > from ? cut.from : cut.to;
}
