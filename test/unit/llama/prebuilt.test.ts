// Prebuilt llama.cpp packages: each package contains the library files that the engine looks for.
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { describe, it } from "node:test";
import { isLibrary } from "../../../engines/llama/native/prebuilt.ts";

const scope = join(dirname(createRequire(import.meta.url).resolve("@node-llama-cpp/linux-x64")), "..", "..");
const packages = readdirSync(scope).filter((name) => !name.endsWith("-ext"));

describe("the names of llama.cpp's libraries", () => {
  for (const name of packages) {
    it(`are known in the package ${name}`, () => {
      const files = readdirSync(join(scope, name, "bins", name));
      for (const library of ["llama", "ggml", "ggml-base"]) {
        assert.equal(files.filter((file) => isLibrary(file, library)).length, 1, `${library} in ${files.join(" ")}`);
      }
    });
  }

  it("are known on other systems", () => {
    for (const file of ["libllama.dylib", "llama.dll", "libllama.metal.v0.5.0.dylib", "libllama.so.0.5.0"]) {
      assert.ok(isLibrary(file, "llama"), file);
    }
    for (const file of ["libllama-common.so", "libggml-base.so", "llama-addon.node"]) {
      assert.ok(!isLibrary(file, "llama"), file);
    }
  });
});
