import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { chooseEngine, type EngineQuestions } from "../../../../cli/assembly/models/choose-engine.ts";
import type { EngineFigures, TrialFigures } from "../../../../engines/engine-choice/figures.ts";

interface Host {
  readonly configured?: EngineQuestions["configured"];
  readonly gpu?: string | null;
  readonly nativeProblem?: string | null;
  readonly wasmRefusal?: string | null;
  readonly wasmOnly?: string | null;
  readonly llamaRefusal?: string | null;
  readonly trial?: TrialFigures | string;
  readonly nodeVersion?: string;
}

const slow: EngineFigures = { prompt: 100, oneRow: 10, sixteenRows: 50, weightBytes: 2 ** 27 };
const quick: EngineFigures = { prompt: 300, oneRow: 20, sixteenRows: 200, weightBytes: 2 ** 27 };

/** Returns functions that answer the questions of the engine choice with these facts, and the list of the questions asked so far. */
function host(facts: Host) {
  const { configured = "auto", gpu = null, nativeProblem = null, wasmRefusal = null, wasmOnly = null } = facts;
  const { llamaRefusal = null, trial: figures = { wasm: quick, llama: slow }, nodeVersion = "24.1.0" } = facts;
  const trial = typeof figures === "string" ? figures : { figures, isNew: true };
  const asked: string[] = [];
  const answer =
    <T>(name: string, value: T) =>
    async () => {
      asked.push(name);
      return value;
    };
  const questions: EngineQuestions = {
    configured,
    path: "m.gguf",
    wasmOnly,
    llamaRefusal,
    nodeVersion,
    gpu: answer("gpu", gpu),
    nativeProblem: answer("nativeProblem", nativeProblem),
    wasmRefusal: answer("wasmRefusal", wasmRefusal),
    trial: answer("trial", trial),
  };
  return { asked, questions };
}

/** Chooses an engine. Returns the log message about the choice. */
async function chosen(questions: EngineQuestions) {
  return (await chooseEngine(questions)).report;
}

const unfit = 'its architecture is "mamba"';
const absent = "no library for linux-x64";

describe("an engine that is set", () => {
  it("is used, whatever the host has", async () => {
    for (const configured of ["llama", "wasm"] as const) {
      for (const gpu of ["cuda", null]) {
        const { asked, questions } = host({ configured, gpu, nativeProblem: absent });
        assert.deepEqual(await chosen(questions), {
          engine: configured,
          reason: "it is set",
          figures: null,
          advice: null,
        });
        assert.deepEqual(asked, configured === "wasm" ? ["wasmRefusal"] : []);
      }
    }
  });

  it("is rejected if it is wasm and cannot run the file", async () => {
    await assert.rejects(chosen(host({ configured: "wasm", wasmRefusal: unfit }).questions), {
      code: "config_invalid",
      param: "engine",
      message: /"m\.gguf"; got wasm, which cannot: its architecture is "mamba"; use llama or auto/,
    });
  });
});

describe("settings that the llama engine refuses", () => {
  const llamaRefusal = "max_seqs 300 is more than its 256";

  it("make auto choose wasm on a CPU, without a trial", async () => {
    const { asked, questions } = host({ llamaRefusal });
    const { engine, reason } = await chosen(questions);
    assert.deepEqual([engine, reason], ["wasm", `no GPU to use; llama cannot: ${llamaRefusal}`]);
    assert.ok(!asked.includes("trial"));
  });

  it("let llama report the reason if wasm cannot run the file", async () => {
    const { questions } = host({ llamaRefusal, wasmRefusal: unfit });
    assert.equal((await chosen(questions)).engine, "llama");
  });
});

describe("a setting that only the wasm engine supports", () => {
  const wasmOnly = "xlora";

  it("makes auto choose it, whatever the host has", async () => {
    for (const gpu of ["cuda", null]) {
      const { asked, questions } = host({ wasmOnly, gpu });
      const choice = await chosen(questions);
      assert.deepEqual(choice, {
        engine: "wasm",
        reason: "the only one with xlora",
        figures: null,
        advice: null,
      });
      assert.deepEqual(asked, ["wasmRefusal"]);
      assert.deepEqual((await chosen(host({ wasmOnly, gpu, configured: "wasm" }).questions)).engine, "wasm");
    }
  });

  it("is rejected with the llama engine", async () => {
    await assert.rejects(chosen(host({ wasmOnly, configured: "llama" }).questions), {
      code: "config_invalid",
      param: "engine",
      message: "engine expects wasm, the only one with xlora; got llama: remove one of the two",
    });
  });

  it("is refused with a model that the wasm engine cannot run, with the reason", async () => {
    await assert.rejects(chosen(host({ wasmOnly, gpu: "cuda", wasmRefusal: unfit }).questions), {
      code: "config_invalid",
      param: "xlora",
      message:
        'xlora expects a model that the wasm engine can run; it cannot run "m.gguf": its architecture is "mamba"',
    });
  });
});

describe("auto", () => {
  it("chooses llama if there is a GPU, without further checks", async () => {
    const { asked, questions } = host({ gpu: "vulkan", wasmRefusal: unfit });
    const choice = await chosen(questions);
    assert.deepEqual(choice, {
      engine: "llama",
      reason: "there is a GPU (vulkan)",
      figures: null,
      advice: null,
    });
    assert.deepEqual(asked, ["gpu"]);
  });

  it("chooses the engine that was faster in a trial on a CPU, logs the figures, and does not check the libraries", async () => {
    for (const [quicker, figures] of [
      ["wasm", { wasm: quick, llama: slow }],
      ["llama", { wasm: slow, llama: quick }],
    ] as const) {
      const { asked, questions } = host({ trial: figures });
      const choice = await chosen(questions);
      assert.equal(choice.engine, quicker);
      assert.deepEqual(choice.figures, figures);
      assert.match(
        choice.reason,
        /quicker in a trial .*wasm prompt \d+, decode \d+, 16 at once \d+, weights 128 MiB; llama prompt \d+/,
      );
      assert.deepEqual(asked, ["gpu", "wasmRefusal", "trial"]);
    }
  });

  it("weighs two prompt tokens against one output token, which takes llama longer in a server", async () => {
    const engineFor = async (wasm: EngineFigures, llama: EngineFigures) =>
      (await chosen(host({ trial: { wasm, llama } }).questions)).engine;
    const readsFast: EngineFigures = { ...slow, prompt: 200 };
    const writesFast: EngineFigures = { ...slow, oneRow: 1 / 0.06 };
    // Two prompt tokens and one output token take 0.01 + 0.06 s on wasm and 0.02 + 1.25 * 0.04 s on llama. The factor 1.25 is the
    // slowdown of llama's output tokens in a server, compared with the trial. The sums are equal, so a small change of one speed
    // decides the choice.
    assert.equal(await engineFor({ ...readsFast, prompt: 210 }, writesFast), "wasm");
    assert.equal(await engineFor({ ...readsFast, prompt: 190 }, writesFast), "llama");
  });

  it("advises Node 24 on an older one where it makes a worthwhile difference, with the estimate", async () => {
    const adviceOn = async (nodeVersion: string, wasm: EngineFigures, llama: EngineFigures) =>
      (await chosen(host({ trial: { wasm, llama }, nodeVersion }).questions)).advice;
    const reader: EngineFigures = { ...slow, oneRow: 500, sixteenRows: 500 };
    const advice = /^this is Node 20\.11\.0; on Node 24 .* about 1\.5 times as fast .*: npx .*node@24 /;
    assert.match((await adviceOn("20.11.0", reader, reader)) ?? "", advice, "wasm is as quick already");
    const ahead = { ...reader, prompt: 1.1 * reader.prompt };
    assert.match((await adviceOn("20.11.0", reader, ahead)) ?? "", /about 1\.4 times/, "wasm would be ahead");
    const farAhead = { ...reader, prompt: 1.4 * reader.prompt };
    assert.equal(await adviceOn("20.11.0", reader, farAhead), null, "wasm would hardly be ahead");
    const writer: EngineFigures = { ...slow, prompt: 1000 };
    assert.equal(await adviceOn("20.11.0", writer, slow), null, "wasm's time is that of single sequences");
    assert.equal(await adviceOn("24.0.0", reader, reader), null);
  });

  it("compares encoders by the speed of reading", async () => {
    const encoder = (prompt: number): EngineFigures => ({ ...slow, prompt, oneRow: null, sixteenRows: null });
    const { questions } = host({ trial: { wasm: encoder(900), llama: encoder(1000) } });
    const { engine, reason } = await chosen(questions);
    assert.equal(engine, "llama");
    assert.match(reason, /wasm prompt 900, weights 128 MiB; llama prompt 1000, weights 128 MiB$/);
  });

  it("chooses wasm on a CPU if the native libraries do not load, and says so", async () => {
    const { engine, reason } = await chosen(host({ nativeProblem: absent, trial: "it died" }).questions);
    assert.equal(engine, "wasm");
    assert.match(reason, /llama cannot: no library for linux-x64/);
  });

  it("chooses wasm if the trial fails, and says why", async () => {
    const { engine, reason } = await chosen(host({ trial: "no space left" }).questions);
    assert.equal(engine, "wasm");
    assert.match(reason, /could not be compared: no space left/);
  });

  it("chooses llama on a CPU if wasm cannot run the file, and says so", async () => {
    const { engine, reason } = await chosen(host({ wasmRefusal: unfit }).questions);
    assert.equal(engine, "llama");
    assert.match(reason, /wasm cannot: its architecture is "mamba"/);
  });

  it("is rejected if neither can run it, with both reasons", async () => {
    await assert.rejects(chosen(host({ nativeProblem: absent, wasmRefusal: unfit }).questions), {
      code: "config_invalid",
      message: /^no engine can run "m\.gguf" here: (?=.*no library for linux-x64)(?=.*"mamba")/,
    });
  });

  it("reports what is wrong with a file that no engine can run", async () => {
    const { questions } = host({});
    const broken: EngineQuestions = { ...questions, wasmRefusal: () => Promise.reject(new Error("not a GGUF file")) };
    await assert.rejects(chosen(broken), /not a GGUF file/);
  });
});
