import assert from "node:assert/strict";
import { mkdtempSync, rmSync, truncateSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { Random } from "../../../../engines/decoding/sampler/random.ts";
import { type AdapterFile, ranksOf, readAdapterFile } from "../../../../engines/wasm/adapters/file.ts";
import { adapterBytes, siteBytes } from "../../../../engines/wasm/adapters/layout.ts";
import { packAdapter } from "../../../../engines/wasm/adapters/packing.ts";
import { type AdapterSite, pieceOf } from "../../../../engines/wasm/adapters/sites.ts";
import type { Matrix } from "../../../../engines/wasm/graph/graph-tensors.ts";
import type { KernelExports } from "../../../../engines/wasm/load/kernel-exports.ts";
import { createMemory, instantiateKernels, type KernelModule } from "../../../../engines/wasm/load/kernel-module.ts";
import type { AdapterRanks } from "../../../../engines/wasm/plan/mixture.ts";
import { divide } from "../../../../engines/wasm/plan/partition-plan.ts";
import { type Tensor, text, writeGguf } from "../../../fixtures/models/tiny-gguf.ts";
import { loadWith, randomFloats, variants } from "../kernels/kernel-fixtures.ts";

const folder = mkdtempSync(join(tmpdir(), "troupe-adapters-"));
after(() => rmSync(folder, { recursive: true }));

const maxRank = 64;
const memoryPages = 24;
const firstByte = 65_536;
const tokenCount = 12;
const rubbish = 0xff;

function matrix(name: string, rows: number, columns: number): Matrix {
  const tensor = { name, type: 0, shape: [columns, rows], file: 0, offset: 0, bytes: 0 };
  return { name, tensor, firstRow: 0, rows, columns, bias: null };
}

/**
 * Returns three sites (groups of matrices with the same input). The first site's matrices are divided among the threads
 * jointly, the second site's separately. The third site has one matrix. All have different numbers of rows.
 */
function sitesFor(threads: number): AdapterSite[] {
  const [q, k, v] = [matrix("q", 64, 64), matrix("k", 32, 64), matrix("v", 20, 64)];
  const [gate, up, down] = [matrix("gate", 100, 64), matrix("up", 100, 64), matrix("down", 48, 96)];
  const together = divide([q, k, v], 16, threads);
  return [
    { matrices: [q, k, v], columns: 64, shares: [together, together, together] },
    { matrices: [gate, up], columns: 64, shares: [divide([gate], 16, threads), divide([up], 16, threads)] },
    { matrices: [down], columns: 96, shares: [divide([down], 16, threads)] },
  ];
}

interface Adapter {
  readonly ranks: AdapterRanks;
  readonly tensors: ReadonlyMap<string, Float32Array>;
  readonly path: string;
}

let files = 0;

/** Returns an adapter whose values are exact in F16. */
async function createAdapter(ranks: AdapterRanks, more: readonly Tensor[] = []): Promise<Adapter> {
  const random = new Random(BigInt(++files));
  const values = (count: number) =>
    Float32Array.from({ length: count }, () => Math.floor(random.next() * 2047 - 1023) / 1024);
  const tensors = sitesFor(1).flatMap(({ matrices, columns }, site) =>
    matrices.flatMap(({ tensor, rows }, number): Tensor[] => {
      const rank = ranks[site]?.[number] ?? 0;
      if (rank === 0) return [];
      return [
        { name: `${tensor.name}.lora_a`, shape: [columns, rank], values: values(columns * rank) },
        { name: `${tensor.name}.lora_b`, shape: [rank, rows], values: values(rows * rank) },
      ];
    }),
  );
  const path = join(folder, `${files}.gguf`);
  const fields = { "general.type": text("adapter"), "adapter.type": text("lora") };
  await writeGguf(path, { fields, tensors: [...tensors, ...more], weights: "F16" });
  return { ranks, tensors: new Map(tensors.map((tensor) => [tensor.name, tensor.values])), path };
}

/** Memories of several threads, and their adapters. Computes the products of a site. */
class Rig {
  readonly #sites: readonly AdapterSite[];
  readonly #threads: { readonly kernels: KernelExports; readonly memory: SharedArrayBuffer }[];
  readonly #addresses: number[] = [];
  #next = firstByte;

  constructor(module: KernelModule, threads: number) {
    this.#sites = sitesFor(threads);
    this.#threads = Array.from({ length: threads }, () => {
      const memory = createMemory(memoryPages);
      new Uint8Array(memory.buffer).fill(rubbish, firstByte);
      return { kernels: instantiateKernels(module, memory), memory: memory.buffer };
    });
  }

  async add({ path }: Adapter): Promise<void> {
    const file = await readAdapterFile(path, this.#sites, maxRank);
    const bytes = adapterBytes(this.#sites, ranksOf(file), this.#threads.length);
    const address = this.#take(bytes);
    this.#pack(file, bytes, address);
    this.#addresses.push(address);
  }

  #pack(file: AdapterFile, bytes: number, address: number): void {
    packAdapter(
      [file],
      this.#sites,
      bytes,
      this.#threads.map(({ memory }) => ({ memory, address })),
    );
  }

  /** Returns the results of one matrix: `y` plus the product of each token's adapter. `adapterOf`: adapter of each token; -1 = none. */
  run(
    site: number,
    number: number,
    x: Float32Array,
    y: readonly Float32Array[],
    adapterOf: readonly number[],
  ): Float32Array[] {
    const start = this.#next;
    const found = this.#sites[site]!;
    const { columns } = found;
    const { rows } = found.matrices[number]!;
    const groups = [...new Set(adapterOf)].filter((adapter) => adapter >= 0);
    const lists = groups.map((adapter) => [...adapterOf.keys()].filter((token) => adapterOf[token] === adapter));
    const entries = groups.flatMap((adapter, i) => [
      this.#addresses[adapter]!,
      lists.slice(0, i).flat().length,
      lists[i]!.length,
    ]);
    const [groupsAt, listAt] = [this.#put(Int32Array.from(entries)), this.#put(Int32Array.from(lists.flat()))];
    const xAt = this.#put(x);
    const slabBytes = tokenCount * 3 * maxRank * 4;
    const slabs = this.#take(slabBytes * this.#threads.length);
    const scratch = this.#take(2 * maxRank * 4);
    const widths = this.#threads.map(({ kernels }, thread) =>
      kernels.reduceAdapters(
        site * siteBytes,
        groupsAt,
        groups.length,
        listAt,
        xAt,
        columns,
        columns,
        slabs + thread * slabBytes,
      ),
    );
    assert.equal(new Set(widths).size, 1, "all threads agree on the width");
    for (const [thread, { memory }] of this.#threads.entries()) {
      const own = new Uint8Array(memory, slabs + thread * slabBytes, slabBytes);
      for (const other of this.#threads) new Uint8Array(other.memory, slabs + thread * slabBytes, slabBytes).set(own);
    }
    const results = y.map((values) => values.slice(0, rows));
    if (widths[0]! > 0) {
      for (const [thread, { kernels, memory }] of this.#threads.entries()) {
        const piece = pieceOf(found, number, thread);
        if (!piece) continue;
        const stride = piece.padded + 16;
        const at = this.#take(y.length * stride * 4);
        const own = new Float32Array(memory, at, y.length * stride);
        for (const [token, values] of y.entries()) {
          own.set(values.subarray(piece.firstRow, piece.firstRow + piece.rows), token * stride);
        }
        kernels.addAdapters(
          site * siteBytes,
          number,
          groupsAt,
          groups.length,
          listAt,
          slabs,
          slabBytes,
          widths[0]!,
          scratch,
          piece.padded,
          at,
          stride,
        );
        for (const [token, values] of results.entries()) {
          values.set(own.subarray(token * stride, token * stride + piece.rows), piece.firstRow);
        }
      }
    }
    this.#next = start;
    return results;
  }

  #take(bytes: number): number {
    const at = this.#next;
    this.#next += Math.ceil(bytes / 64) * 64;
    assert.ok(this.#next <= memoryPages * 65_536, "the test's memory is too small");
    return at;
  }

  #put(values: Int32Array | Float32Array): number {
    const at = this.#take(values.byteLength);
    const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
    for (const { memory } of this.#threads) new Uint8Array(memory, at, bytes.length).set(bytes);
    return at;
  }
}

/** Returns y + B A x in plain arithmetic, and the tolerance for a result. */
function expected(adapter: Adapter, name: string, rank: number, x: Float32Array, y: Float32Array) {
  const a = adapter.tensors.get(`${name}.lora_a`)!;
  const b = adapter.tensors.get(`${name}.lora_b`)!;
  const reduced = Float64Array.from({ length: rank }, (_, r) =>
    x.reduce((sum, value, column) => sum + value * a[r * x.length + column]!, 0),
  );
  const values = Float64Array.from(y, (value, row) =>
    reduced.reduce((sum, u, r) => sum + u * b[row * rank + r]!, value),
  );
  // A and B are rounded to 16-bit integers. If the largest value is about 1, the error of each value is half of 1/32767.
  const tolerance = rank * x.reduce((sum, value) => sum + Math.abs(value), 0) * 2 ** -15;
  return { values, tolerance };
}

const ranks: readonly AdapterRanks[] = [
  [[3, 1, 0], [16, 16], [5]],
  [[16, 16, 16], [0, 2], [16]],
  [[0, 0, 0], [64, 33], [0]],
  [[2, 0, 7], [0, 0], [64]],
];
const adapters = await Promise.all(ranks.map((rank) => createAdapter(rank)));

for (const variant of variants) {
  const module = await loadWith(variant);

  async function rigOf(threads: number): Promise<Rig> {
    const rig = new Rig(module, threads);
    for (const adapter of adapters) await rig.add(adapter);
    return rig;
  }

  const inputs = (columns: number) => randomFloats(tokenCount * columns, columns, 4);
  const outputs = Array.from({ length: tokenCount }, (_, token) => randomFloats(100, token));

  describe(`adapters on the ${variant} kernels`, () => {
    // Each adapter has 1 to 5 tokens, interleaved with other adapters and with tokens without an adapter.
    const adapterOf = [2, 0, -1, 1, 3, 0, 3, 0, 3, -1, 3, 3];

    for (const threads of [1, 2, 3, 5]) {
      it(`add the products of plain arithmetic, each to its own tokens: ${threads} threads`, async () => {
        const rig = await rigOf(threads);
        for (const [site, { matrices, columns }] of sitesFor(1).entries()) {
          const x = inputs(columns);
          for (const [number, { tensor, rows }] of matrices.entries()) {
            const y = outputs.map((values) => values.slice(0, rows));
            const results = rig.run(site, number, x, y, adapterOf);
            for (const [token, result] of results.entries()) {
              const adapter = adapterOf[token]!;
              const rank = ranks[adapter]?.[site]?.[number] ?? 0;
              const what = `token ${token}, adapter ${adapter}, ${tensor.name}`;
              if (rank === 0) {
                assert.deepEqual(result, y[token], what);
                continue;
              }
              const input = x.subarray(token * columns, (token + 1) * columns);
              const { values, tolerance } = expected(adapters[adapter]!, tensor.name, rank, input, y[token]!);
              for (const [row, value] of values.entries()) {
                assert.ok(
                  Math.abs(value - result[row]!) <= tolerance,
                  `${what}, row ${row}: ${result[row]}, not ${value}`,
                );
              }
            }
          }
        }
      });
    }

    it("give a token the same results alone and in a batch, for any number of threads, bit for bit", async () => {
      const [one, three] = [await rigOf(1), await rigOf(3)];
      for (const [site, { matrices, columns }] of sitesFor(1).entries()) {
        const x = inputs(columns);
        for (const [number, { rows }] of matrices.entries()) {
          const y = outputs.map((values) => values.slice(0, rows));
          const together = one.run(site, number, x, y, adapterOf);
          assert.deepEqual(three.run(site, number, x, y, adapterOf), together);
          for (const token of [0, 1, 3, 11]) {
            const alone = one.run(
              site,
              number,
              x,
              y,
              adapterOf.map((adapter, i) => (i === token ? adapter : -1)),
            );
            assert.deepEqual(alone[token], together[token], `token ${token}`);
          }
        }
      }
    });
  });
}

describe("the file of an adapter", () => {
  const refusal = (path: string, message: RegExp) =>
    assert.rejects(readAdapterFile(path, sitesFor(2), maxRank), { code: "lora_device_load_failed", message });

  it("may leave matrices unchanged", async () => {
    const file = await readAdapterFile(adapters[3]!.path, sitesFor(2), maxRank);
    assert.deepEqual(ranksOf(file), ranks[3]);
    assert.equal(file.bytes, 2 * (2 * (64 + 64) + 7 * (64 + 20) + 64 * (96 + 48)));
  });

  it("is rejected with a rank above the limit, an incomplete pair or a wrong shape", async () => {
    await refusal((await createAdapter([[65]])).path, /has rank 65 for "q"; expected at most 64/);
    const half = { name: "k.lora_b", shape: [2, 32], values: new Float32Array(64) };
    await refusal((await createAdapter([[1]], [half])).path, /no tensor "k\.lora_a"/);
    const long = { name: "k.lora_a", shape: [96, 2], values: new Float32Array(192) };
    await refusal((await createAdapter([[1]], [half, long])).path, /"k\.lora_a" as F16 96 x 2; expected F16 64 x 2/);
  });

  it("is rejected as unsupported if it changes a matrix without a site", async () => {
    const halves = ["a", "b"].map((half) => `token_embd.weight.lora_${half}`);
    const strangers = halves.map((name) => ({ name, shape: [64, 2], values: new Float32Array(128) }));
    const { path } = await createAdapter([[1]], strangers);
    const message = /changes "token_embd\.weight"; .* --engine llama/;
    await assert.rejects(readAdapterFile(path, sitesFor(2), maxRank), { code: "invalid_lora_adapter", message });
  });

  it("is rejected if it is missing or truncated", async () => {
    await assert.rejects(readAdapterFile(join(folder, "none.gguf"), sitesFor(2), maxRank), /none\.gguf/);
    const { path } = await createAdapter([[8, 8, 8]]);
    truncateSync(path, 2048);
    await assert.rejects(readAdapterFile(path, sitesFor(2), maxRank), /incomplete copy/);
  });
});
