// Speed trial rounds, with simulated engines and a simulated clock: duration and order of the measurements, and the choice of
// the faster engine in spite of noise.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { type EngineFigures, quickerEngine } from "../../../../engines/engine-choice/figures.ts";
import { timeInRounds } from "../../../../engines/engine-choice/rounds.ts";
import { type Workload, workloadsFor } from "../../../../engines/engine-choice/workloads.ts";

const limits = { clearMs: 300, closeMs: 800 };
const chat = workloadsFor(256, true);

/** Simulates a trial in which each run takes `msOf(engine, run)` milliseconds; `run` counts the runs of that engine. */
function simulate(msOf: (engine: "wasm" | "llama", run: number, workload: Workload) => number, workloads = chat) {
  let nowMs = 0;
  const order: string[] = [];
  const engineOf = (name: "wasm" | "llama") => {
    let runs = 0;
    return {
      run: (workload: Workload) => {
        const ms = msOf(name, runs++, workload);
        nowMs += ms;
        order.push(name);
        return ms;
      },
    };
  };
  const speeds = timeInRounds({ wasm: engineOf("wasm"), llama: engineOf("llama") }, workloads, limits, () => nowMs);
  const weights = { weightBytes: 1 };
  const engine = quickerEngine({ wasm: { ...speeds.wasm, ...weights }, llama: { ...speeds.llama, ...weights } });
  return { engine, speeds, order, nowMs };
}

describe("rounds of a trial", () => {
  it("end early if one engine is clearly faster", () => {
    const { engine, nowMs } = simulate((name) => (name === "wasm" ? 5 : 10));
    assert.equal(engine, "wasm");
    assert.ok(nowMs >= limits.clearMs && nowMs < limits.clearMs + 50, `${nowMs} ms`);
  });

  it("continue if the engines are close, and end at the limit", () => {
    const { engine, nowMs } = simulate((name) => (name === "wasm" ? 10 : 7.8));
    assert.equal(engine, "llama");
    assert.ok(nowMs >= limits.closeMs && nowMs < limits.closeMs + 100, `${nowMs} ms`);
  });

  it("end as soon as one engine is ahead, if the first rounds were close", () => {
    // All early runs of llama are slowed down by a disturbance.
    const { engine, nowMs } = simulate((name, run) => (name === "wasm" ? 10 : run < 16 ? 8 : 6.4));
    assert.equal(engine, "llama");
    assert.ok(nowMs > limits.clearMs && nowMs < limits.closeMs, `${nowMs} ms`);
  });

  it("ignore the first one, in which code is compiled", () => {
    const { engine } = simulate((name, run) => (name === "wasm" ? 10 : run < 3 ? 1 : 12));
    assert.equal(engine, "wasm");
  });

  it("find the faster engine although most of its runs are disturbed", () => {
    const { engine } = simulate((name, run) => (name === "wasm" ? 10.5 : run % 4 === 0 ? 8 : 12));
    assert.equal(engine, "llama");
  });

  it("alternate the order of the engines", () => {
    const { order } = simulate(() => 10);
    const firsts = Array.from({ length: order.length / 6 }, (_, round) => order[round * 6]);
    assert.deepEqual(new Set(firsts.filter((_, round) => round % 2 === 0)), new Set(["wasm"]));
    assert.deepEqual(new Set(firsts.filter((_, round) => round % 2 === 1)), new Set(["llama"]));
  });

  it("are few if a single one takes long, as with the layers of a large model or on a busy machine", () => {
    assert.equal(simulate((name) => (name === "wasm" ? 300 : 200)).order.length, 2 * 6);
    const { order, engine } = simulate((name) => (name === "wasm" ? 900 : 650));
    assert.equal(order.length, 6);
    assert.equal(engine, "llama");
  });

  it("measure an encoder with one text and with several", () => {
    const encoder = workloadsFor(256, false);
    // wasm is faster for one text, llama for several texts. The difference for one text is larger, so wasm is chosen.
    const { engine, speeds } = simulate((name, _, { rows }) => {
      if (rows === 1) return name === "wasm" ? 20 : 30;
      return name === "wasm" ? 150 : 140;
    }, encoder);
    assert.equal(engine, "wasm");
    assert.ok(speeds.wasm.prompt > speeds.llama.prompt);
    assert.deepEqual([speeds.wasm.oneRow, speeds.wasm.sixteenRows], [null, null]);
  });
});

describe("the choice", () => {
  // Measured in trials on an AMD EPYC: tokens/s of prefill, of decode with one sequence, and of decode with 16 sequences. The
  // expected engine served chats to 1, 8 and 32 clients faster; see bench/results/choice.md.
  for (const [type, expected, wasm, llama] of [
    ["Q8_0", "llama", [460, 263, 352], [898, 230, 524]],
    ["Q4_0", "llama", [707, 345, 475], [1132, 338, 687]],
    ["Q4_1", "wasm", [673, 330, 468], [422, 242, 306]],
    ["Q4_K_M", "llama", [456, 239, 348], [773, 266, 422]],
    ["F16", "wasm", [368, 131, 272], [381, 143, 232]],
  ] as const) {
    it(`is the engine that serves ${type} faster`, () => {
      const figures = ([prompt, oneRow, sixteenRows]: readonly number[]) =>
        ({ prompt, oneRow, sixteenRows, weightBytes: 1 }) as EngineFigures;
      assert.equal(quickerEngine({ wasm: figures(wasm), llama: figures(llama) }), expected);
    });
  }
});
