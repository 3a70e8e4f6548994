import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { chooseEngine, type EngineQuestions } from "../../../cli/choose-engine.ts";

interface Host {
  readonly configured?: EngineQuestions["configured"];
  readonly gpu?: string | null;
  readonly nativeProblem?: string | null;
  readonly wasmRefusal?: string | null;
  readonly wasmOnly?: string | null;
}

/** A host that answers as it is told, and notes what it is asked. */
function host({ configured = "auto", gpu = null, nativeProblem = null, wasmRefusal = null, wasmOnly = null }: Host) {
  const asked: string[] = [];
  const answer = (name: string, value: string | null) => async () => {
    asked.push(name);
    return value;
  };
  const questions: EngineQuestions = {
    configured,
    path: "m.gguf",
    wasmOnly,
    gpu: answer("gpu", gpu),
    nativeProblem: answer("nativeProblem", nativeProblem),
    wasmRefusal: answer("wasmRefusal", wasmRefusal),
  };
  return { asked, questions };
}

const unfit = 'its architecture is "mamba"';
const absent = "no library for linux-x64";

describe("an engine that is set", () => {
  it("is taken, whatever the host has", async () => {
    for (const configured of ["llama", "wasm"] as const) {
      for (const gpu of ["cuda", null]) {
        const { asked, questions } = host({ configured, gpu, nativeProblem: absent });
        assert.deepEqual(await chooseEngine(questions), { engine: configured, reason: "it is set" });
        assert.ok(!asked.includes("gpu") && !asked.includes("nativeProblem"), `${asked}`);
      }
    }
  });

  it("is refused where it is wasm and cannot run the file", async () => {
    await assert.rejects(chooseEngine(host({ configured: "wasm", wasmRefusal: unfit }).questions), {
      code: "config_invalid",
      param: "engine",
      message: /"m\.gguf"; got wasm, which cannot: its architecture is "mamba"; try llama or auto/,
    });
  });
});

describe("a setting that only the wasm engine can do", () => {
  const wasmOnly = "xlora";

  it("has it chosen, whatever the host has", async () => {
    for (const gpu of ["cuda", null]) {
      const { asked, questions } = host({ wasmOnly, gpu });
      assert.deepEqual(await chooseEngine(questions), { engine: "wasm", reason: "the only one with xlora" });
      assert.deepEqual(asked, ["wasmRefusal"]);
      assert.deepEqual((await chooseEngine(host({ wasmOnly, gpu, configured: "wasm" }).questions)).engine, "wasm");
    }
  });

  it("is refused beside the llama engine", async () => {
    await assert.rejects(chooseEngine(host({ wasmOnly, configured: "llama" }).questions), {
      code: "config_invalid",
      param: "engine",
      message: "engine expects wasm, the only one with xlora; got llama: leave one of the two out",
    });
  });

  it("is refused with a model that the wasm engine cannot run, with the reason", async () => {
    await assert.rejects(chooseEngine(host({ wasmOnly, gpu: "cuda", wasmRefusal: unfit }).questions), {
      code: "config_invalid",
      param: "xlora",
      message:
        'xlora expects a model that the wasm engine can run; it cannot run "m.gguf": its architecture is "mamba"',
    });
  });
});

describe("auto", () => {
  it("takes llama where there is a GPU, and asks nothing else", async () => {
    for (const preferred of ["llama", "wasm"] as const) {
      const { asked, questions } = host({ gpu: "vulkan", wasmRefusal: unfit });
      const choice = await chooseEngine(questions, preferred);
      assert.deepEqual(choice, { engine: "llama", reason: "there is a GPU (vulkan)" });
      assert.deepEqual(asked, ["gpu"]);
    }
  });

  it("takes the quicker engine on a CPU, and does not ask for the other", async () => {
    for (const [preferred, other] of [
      ["llama", "wasmRefusal"],
      ["wasm", "nativeProblem"],
    ] as const) {
      const { asked, questions } = host({});
      const { engine, reason } = await chooseEngine(questions, preferred);
      assert.equal(engine, preferred);
      assert.match(reason, /no GPU/);
      assert.ok(!asked.includes(other), `${asked}`);
    }
  });

  it("takes wasm on a CPU where the native libraries do not load, and says so", async () => {
    const { engine, reason } = await chooseEngine(host({ nativeProblem: absent }).questions, "llama");
    assert.equal(engine, "wasm");
    assert.match(reason, /llama cannot: no library for linux-x64/);
  });

  it("takes llama on a CPU where wasm cannot run the file, and says so", async () => {
    const { engine, reason } = await chooseEngine(host({ wasmRefusal: unfit }).questions, "wasm");
    assert.equal(engine, "llama");
    assert.match(reason, /wasm cannot: its architecture is "mamba"/);
  });

  it("is refused where neither can, with both reasons", async () => {
    for (const preferred of ["llama", "wasm"] as const) {
      await assert.rejects(chooseEngine(host({ nativeProblem: absent, wasmRefusal: unfit }).questions, preferred), {
        code: "config_invalid",
        message: /^no engine can run "m\.gguf" here: (?=.*no library for linux-x64)(?=.*"mamba")/,
      });
    }
  });

  it("passes on what is wrong with a file that nobody can run", async () => {
    const { questions } = host({});
    const broken: EngineQuestions = { ...questions, wasmRefusal: () => Promise.reject(new Error("not a GGUF file")) };
    await assert.rejects(chooseEngine(broken, "wasm"), /not a GGUF file/);
  });
});
