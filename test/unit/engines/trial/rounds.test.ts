// Decision of a trial, with simulated engines and a simulated clock: duration and order of the measurements, and the choice of
// the faster engine in spite of noise.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { quickerEngine } from "../../../../engines/trial/figures.ts";
import { timeInRounds } from "../../../../engines/trial/rounds.ts";
import { type Workload, workloadsFor } from "../../../../engines/trial/workloads.ts";

const limits = { clearMs: 300, closeMs: 800 };
const chat = workloadsFor(256, true);

/** Runs a trial in which a run takes `msOf(engine, run)` milliseconds; `run` counts that engine's runs. */
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
  it("end early where one engine is clearly quicker", () => {
    const { engine, nowMs } = simulate((name) => (name === "wasm" ? 5 : 10));
    assert.equal(engine, "wasm");
    assert.ok(nowMs >= limits.clearMs && nowMs < limits.clearMs + 50, `${nowMs} ms`);
  });

  it("go on where the engines are close, and end at the limit", () => {
    const { engine, nowMs } = simulate((name) => (name === "wasm" ? 10 : 9.6));
    assert.equal(engine, "llama");
    assert.ok(nowMs >= limits.closeMs && nowMs < limits.closeMs + 100, `${nowMs} ms`);
  });

  it("end as soon as one is ahead, if the first rounds made them look close", () => {
    // All early runs of llama are disturbed.
    const { engine, nowMs } = simulate((name, run) => (name === "wasm" ? 10 : run < 16 ? 10 : 8));
    assert.equal(engine, "llama");
    assert.ok(nowMs > limits.clearMs && nowMs < limits.closeMs, `${nowMs} ms`);
  });

  it("do not count the first one, in which code is compiled", () => {
    const { engine } = simulate((name, run) => (name === "wasm" ? 10 : run < 3 ? 1 : 12));
    assert.equal(engine, "wasm");
  });

  it("find the quicker engine although most of its runs are disturbed", () => {
    const { engine } = simulate((name, run) => (name === "wasm" ? 10.5 : run % 4 === 0 ? 10 : 15));
    assert.equal(engine, "llama");
  });

  it("alternate which engine is first", () => {
    const { order } = simulate(() => 10);
    const firsts = Array.from({ length: order.length / 6 }, (_, round) => order[round * 6]);
    assert.deepEqual(new Set(firsts.filter((_, round) => round % 2 === 0)), new Set(["wasm"]));
    assert.deepEqual(new Set(firsts.filter((_, round) => round % 2 === 1)), new Set(["llama"]));
  });

  it("are few where a single one takes long, as with the layers of a large model or on a busy machine", () => {
    assert.equal(simulate((name) => (name === "wasm" ? 300 : 250)).order.length, 2 * 6);
    const { order, engine } = simulate((name) => (name === "wasm" ? 900 : 800));
    assert.equal(order.length, 6);
    assert.equal(engine, "llama");
  });

  it("time an encoder at one text and at several", () => {
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
