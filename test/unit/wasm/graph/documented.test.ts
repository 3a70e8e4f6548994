// Documented support: the tables of docs/models.md must list exactly what the wasm engine accepts.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { tensorTypes } from "../../../../engines/files/gguf/tensors.ts";
import { architectures } from "../../../../engines/wasm/graph/architectures/registry.ts";
import { matrixTypes } from "../../../../engines/wasm/graph/graph-tensors.ts";

/** Returns the rows of the table in docs/models.md whose header begins with `column`, each as a list of cells. */
function rowsOf(column: string): string[][] {
  const lines = readFileSync(new URL("../../../../../docs/models.md", import.meta.url), "utf8").split("\n");
  const head = lines.findIndex((line) => line.startsWith(`| ${column} `));
  assert.ok(head >= 0, `no table of ${column}`);
  const rows = lines.slice(head + 2);
  return rows.slice(0, rows.indexOf("")).map((row) => row.split("|").map((cell) => cell.trim()));
}

const named = (cell = "") => [...cell.matchAll(/`([^`]+)`/g)].map(([, name]) => name as string);

describe("docs/models.md", () => {
  it("lists the architectures of the wasm engine, and the features of each", () => {
    const documented = rowsOf("architecture").map(([, name, , does]) => [...named(name), does]);
    const real = architectures.map(({ name, isEncoder }) => [name, isEncoder ? "embeds" : "generates"]);
    assert.deepEqual(documented.sort(), real.sort());
  });

  it("lists the number types of the wasm engine, and the length of their blocks", () => {
    const documented = rowsOf("number types").flatMap(([, types, block]) =>
      named(types).map((type) => `${type} ${block}`),
    );
    const real = [...matrixTypes].map((number) => {
      const { name, blockLength } = tensorTypes.get(number) ?? assert.fail(`no type ${number}`);
      return `${name} ${blockLength}`;
    });
    assert.deepEqual(documented.sort(), real.sort());
  });
});
