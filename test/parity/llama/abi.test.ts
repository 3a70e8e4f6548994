import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import type { TypeObject } from "koffi";
import { tensorV050 } from "../../../engines/llama/calibration/tensor-abi.ts";
import { bindingOf, structsV050 } from "../../../engines/llama/native/abi.ts";
import { openLibrary } from "../../../engines/llama/native/library.ts";
import { quantizeParamsType } from "../../../engines/llama/native/quantizer.ts";
import { bundledRelease } from "../../../engines/llama/native/release.ts";

const structNames = {
  modelParams: "llama_model_params",
  contextParams: "llama_context_params",
  batch: "llama_batch",
  threadPoolParams: "ggml_threadpool_params",
  quantizeParams: "llama_model_quantize_params",
  tensor: "ggml_tensor",
};

describe("the binary interface of llama.cpp", () => {
  it("is known for the release the installed package names", () => {
    assert.equal(typeof bindingOf(bundledRelease() ?? "none"), "function");
  });

  it("is refused for any other release, naming it", () => {
    assert.throws(() => bindingOf("v9.9.9"), /"v9\.9\.9".*v0\.5\.0.*npm ci/s);
  });

  it("reads the defaults that the library's own header documents", async () => {
    const { functions } = await openLibrary(false);
    const model = functions.modelDefaultParams();
    assert.deepEqual(
      [model.n_gpu_layers, model.load_mode, model.vocab_only, model.use_extra_bufts],
      [-1, -1, false, true],
    );
    const context = functions.contextDefaultParams();
    assert.deepEqual([context.n_ctx, context.n_batch, context.n_ubatch, context.n_seq_max], [512, 2048, 512, 1]);
    assert.deepEqual([context.type_k, context.type_v, context.flash_attn_type], [1, 1, -1]);
    assert.deepEqual([context.abort_callback, context.kv_unified, context.no_perf], [null, false, true]);
    assert.deepEqual([context.pooling_type, context.embeddings, context.n_outputs_max], [-1, false, 0]);
  });

  it("is opened for the CPU without node-llama-cpp's add-on", { skip: process.platform !== "linux" }, async () => {
    const { path, backend } = await openLibrary(false);
    assert.match(path, /libllama/);
    assert.equal(backend, "cpu");
    const { sharedObjects } = process.report.getReport() as { sharedObjects: string[] };
    assert.ok(!sharedObjects.some((one) => one.endsWith("llama-addon.node")), "the add-on is mapped");
  });

  describe("against the header in the package's source bundle", () => {
    let directory = "";
    let include: string[] = [];
    before(() => {
      directory = mkdtempSync(join(tmpdir(), "troupe-abi-"));
      if (!missingTool()) include = includesFrom(join(directory, "source"));
    });
    after(() => rmSync(directory, { recursive: true, force: true }));

    it("has the size and the offsets that a C compiler gives", { skip: missingTool() }, () => {
      const structs = { ...structsV050(), quantizeParams: quantizeParamsType(), tensor: tensorV050() };
      const expected: string[] = [];
      const lines: string[] = [];
      for (const [key, name] of Object.entries(structNames)) {
        const type: TypeObject = structs[key as keyof typeof structNames];
        expected.push(`${name} ${type.size}`);
        lines.push(`printf("${name} %zu\\n", sizeof(struct ${name}));`);
        for (const [member, { offset, type: memberType }] of Object.entries(type.members ?? {})) {
          expected.push(`${name}.${member} ${offset} ${memberType.size}`);
          const field = `((struct ${name}*)0)->${member}`;
          lines.push(`printf("${name}.${member} %zu %zu\\n", offsetof(struct ${name}, ${member}), sizeof(${field}));`);
        }
      }
      const source = join(directory, "layout.c");
      const program = `#include <stdio.h>\n#include <stddef.h>\n#include "llama.h"\nint main(void) {\n${lines.join("\n")}\n}\n`;
      writeFileSync(source, program);
      execFileSync("cc", [...include, source, "-o", join(directory, "layout")]);
      const printed = execFileSync(join(directory, "layout"), { encoding: "utf8" }).trim().split("\n");
      assert.ok(printed.length > 60);
      assert.deepEqual(printed, expected);
    });

    it("has the functions of adapters, threads and the quantizer as they are called", { skip: missingTool() }, () => {
      const source = join(directory, "adapters.c");
      const program = `#include "llama.h"
#include "ggml-cpu.h"
struct llama_adapter_lora * (*load)(struct llama_model *, const char *) = llama_adapter_lora_init;
void (*unload)(struct llama_adapter_lora *) = llama_adapter_lora_free;
int32_t (*set)(struct llama_context *, struct llama_adapter_lora **, size_t, float *) = llama_set_adapters_lora;
void (*synchronize)(struct llama_context *) = llama_synchronize;
void (*threads)(struct llama_context *, ggml_threadpool_t, ggml_threadpool_t) = llama_attach_threadpool;
struct ggml_threadpool * (*start)(struct ggml_threadpool_params *) = ggml_threadpool_new;
void (*stop)(struct ggml_threadpool *) = ggml_threadpool_free;
struct llama_model_quantize_params (*defaults)(void) = llama_model_quantize_default_params;
uint32_t (*quantize)(const char *, const char *, const struct llama_model_quantize_params *) = llama_model_quantize;
`;
      writeFileSync(source, program);
      execFileSync("cc", ["-fsyntax-only", "-Werror", ...include, source]);
    });
  });
});

/** Checks out the headers of llama.cpp. Returns the compiler options for their include folders. */
function includesFrom(checkout: string): string[] {
  const packageRoot = dirname(dirname(fileURLToPath(import.meta.resolve("node-llama-cpp"))));
  const bundle = join(packageRoot, "llama", "gitRelease.bundle");
  execFileSync("git", ["clone", "--quiet", "--no-checkout", bundle, checkout], { stdio: "ignore" });
  execFileSync("git", ["-C", checkout, "checkout", "--quiet", "HEAD", "--", "include", "ggml/include"]);
  return [`-I${join(checkout, "include")}`, `-I${join(checkout, "ggml/include")}`];
}

/** Returns the reason why the compiler tests cannot run here; false = they can run. */
function missingTool(): string | false {
  for (const tool of ["git", "cc"]) {
    try {
      execFileSync(tool, ["--version"], { stdio: "ignore" });
    } catch {
      return `${tool} is not installed`;
    }
  }
  return false;
}
