import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, it } from "node:test";
import { type AdapterSite, adapterSites } from "../../../engines/wasm/adapters/sites.ts";
import type { Matrix } from "../../../engines/wasm/graph/graph-tensors.ts";
import { readModel } from "../../../engines/wasm/load/fit.ts";
import {
  type DividedStep,
  divide,
  divideGraph,
  headUnit,
  type Share,
} from "../../../engines/wasm/plan/partition-plan.ts";
import { type TinyArchitecture, writeTinyArchitecture } from "../../fixtures/models/tiny-architectures.ts";
import { inTemporaryFolder } from "../files/gguf/gguf-bytes.ts";

function matrix(name: string, rows: number): Matrix {
  const tensor = { name, type: 0, shape: [64, rows], file: 0, offset: 0, bytes: rows * 256 };
  return { name, tensor, firstRow: 0, rows, columns: 64, bias: null };
}

/** Returns for each column of the joined rows the thread that computes it. Fails if two threads compute the same column. */
function owners(shares: readonly Share[]): number[] {
  const owner: number[] = [];
  shares.forEach(({ pieces }, thread) => {
    for (const { column, rows } of pieces) {
      for (let i = 0; i < rows; i++) {
        assert.equal(owner[column + i], undefined, `column ${column + i} is computed twice`);
        owner[column + i] = thread;
      }
    }
  });
  return owner;
}

describe("dividing matrices between threads", () => {
  it("gives every row to exactly one thread, for any number of rows and threads", () => {
    for (const rows of [16, 17, 48, 576, 1000, 49_152]) {
      for (const threads of [1, 2, 3, 7, 16]) {
        const shares = divide([matrix("a", rows)], 16, threads);
        const owner = owners(shares);
        assert.equal(owner.length, rows);
        assert.ok(owner.every((thread) => thread !== undefined));
      }
    }
  });

  it("gives threads whole heads, and nearly equal numbers of them", () => {
    const [query, key, value] = [matrix("q", 9 * 64), matrix("k", 3 * 64), matrix("v", 3 * 64)];
    const shares = divide([query, key, value], headUnit(64), 2);
    assert.deepEqual(
      shares.map(({ pieces }) => pieces.reduce((sum, { rows }) => sum + rows, 0)),
      [7 * 64, 8 * 64],
    );
    for (const { firstRow, rows } of shares.flatMap(({ pieces }) => pieces)) {
      assert.equal(firstRow % 64, 0);
      assert.equal(rows % 64, 0);
    }
    assert.equal(owners(shares).length, 15 * 64);
  });

  it("pads a piece to whole groups of rows without moving later ones in the joined rows", () => {
    const [first, second] = [matrix("q", 40), matrix("k", 24)];
    const [share] = divide([first, second], headUnit(8), 1) as [Share];
    assert.deepEqual(
      share.pieces.map(({ rows, padded, slabColumn, column }) => ({ rows, padded, slabColumn, column })),
      [
        { rows: 40, padded: 48, slabColumn: 0, column: 0 },
        { rows: 24, padded: 32, slabColumn: 48, column: 40 },
      ],
    );
    assert.equal(share.stride, 80);
  });

  it("leaves threads without work if there are more threads than units", () => {
    const shares = divide([matrix("a", 32)], 16, 5);
    assert.equal(shares.filter(({ pieces }) => pieces.length === 0).length, 3);
    assert.equal(owners(shares).length, 32);
  });

  it("uses as a unit of heads the smallest multiple of 16 rows that holds whole heads", () => {
    assert.deepEqual([4, 8, 16, 24, 64, 80, 96, 100].map(headUnit), [16, 16, 16, 48, 64, 80, 96, 400]);
  });
});

describe("the sites of adapters", () => {
  /** Returns the layer steps with sites (groups of matrices with the same input), each step with its two sites. */
  async function sitesIn(
    name: TinyArchitecture,
  ): Promise<readonly (readonly [DividedStep, AdapterSite, AdapterSite])[]> {
    return inTemporaryFolder(async (folder) => {
      const path = join(folder, "tiny.gguf");
      await writeTinyArchitecture(path, name, { seed: 1 });
      const divided = divideGraph({ ...(await readModel(path)), threads: 2, mixture: null });
      const sites = adapterSites(divided);
      assert.equal(sites.length, divided.outputSite + 1);
      return divided.layers.flat().flatMap((step) => {
        if (!("site" in step)) return [];
        return [[step, sites[step.site]!, sites[step.site + 1]!] as const];
      });
    });
  }

  const names = ({ matrices }: AdapterSite) => matrices.map(({ name }) => name.replace(/^blk\.\d+\.|\.weight$/g, ""));

  it("are numbered in the order of execution, whatever their order in a layer", async () => {
    for (const name of ["llama", "stablelm, blocks side by side"] as const) {
      for (const [{ kind }, first, second] of await sitesIn(name)) {
        const isAttention = kind === "attention";
        assert.deepEqual(names(first), isAttention ? ["attn_q", "attn_k", "attn_v"] : ["ffn_gate", "ffn_up"]);
        assert.deepEqual(names(second), isAttention ? ["attn_output"] : ["ffn_down"]);
      }
    }
  });

  it("include the parts of a tensor that holds several matrices, each by its first row", async () => {
    for (const [{ kind }, first, second] of await sitesIn("phi3")) {
      const isAttention = kind === "attention";
      const [tensor, rows] = isAttention ? ["attn_qkv", [0, 128, 192]] : ["ffn_up", [0, 192]];
      assert.deepEqual(
        first.matrices.map(({ tensor, firstRow }) => [tensor.name.replace(/^blk\.\d+\./, ""), firstRow]),
        rows.map((row) => [`${tensor}.weight`, row]),
      );
      assert.deepEqual(names(second), isAttention ? ["attn_output"] : ["ffn_down"]);
    }
  });

  it("are none in experts", async () => {
    const steps = await sitesIn("mixtral");
    assert.deepEqual([...new Set(steps.map(([{ kind }]) => kind))], ["attention"]);
  });
});
