import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { TuneQuality, TuneSpeeds } from "../../../../actors/api/tuning.ts";
import { type Measured, type SearchOptions, search } from "../../../../cli/tune/measure/search.ts";

/** Fake candidate that runs at `speed`. Each measurement advances the clock by 100 ms. */
class Scripted implements Measured {
  runs = 0;
  isDisposed = false;
  readonly variant: { readonly typeName: string; readonly quality: TuneQuality };

  readonly engine: string;
  readonly speed: number;
  readonly #clock: { ms: number };
  readonly #failure: string | null;

  constructor(
    engine: string,
    speed: number,
    clock: { ms: number },
    quality: TuneQuality = "baseline",
    failure: string | null = null,
  ) {
    this.engine = engine;
    this.speed = speed;
    this.#clock = clock;
    this.#failure = failure;
    this.variant = { typeName: `type ${speed}`, quality };
  }

  get speeds(): TuneSpeeds | null {
    const { speed } = this;
    return this.runs === 0 ? null : { prompt: speed, decode: speed, batchedDecode: speed };
  }

  async measure(): Promise<void> {
    this.#clock.ms += 100;
    if (this.#failure !== null) throw new Error(this.#failure);
    this.runs++;
  }

  dispose(): void {
    this.isDisposed = true;
  }
}

function optionsOf(firsts: readonly Scripted[], clock: { ms: number }): SearchOptions<Scripted> {
  return {
    ...{ firsts, othersOf: () => [], variationsOf: () => [], profile: "fast", expected: 10, deadlineMs: 1e9 },
    ...{ nowMs: () => clock.ms, onProgress: () => {} },
  };
}

describe("the search of a tuning", () => {
  it("measures all, and the better ones more often", async () => {
    const clock = { ms: 0 };
    const candidates = Array.from({ length: 10 }, (_, i) => new Scripted("wasm", i + 1, clock));
    const found = await search(optionsOf(candidates, clock));
    assert.deepEqual(
      found.measured.map(({ speed }) => speed),
      [10, 9, 8, 7, 6, 5, 4, 3, 2, 1],
    );
    assert.deepEqual(
      candidates.map(({ runs }) => runs),
      [2, 2, 2, 2, 2, 5, 5, 11, 11, 11],
    );
    assert.ok(candidates.every(({ isDisposed }) => isDisposed));
    assert.deepEqual([found.isCut, found.warnings], [false, []]);
  });

  it("measures the other variants with the best number of threads of each engine", async () => {
    const clock = { ms: 0 };
    const firsts = [3, 4, 1, 2].map((speed) => new Scripted(speed > 2 ? "wasm" : "llama", speed, clock));
    const asked: number[] = [];
    const othersOf = ({ engine, speed }: Scripted) => {
      asked.push(speed);
      return [new Scripted(engine, 10 * speed, clock)];
    };
    const { measured } = await search({ ...optionsOf(firsts, clock), othersOf });
    assert.deepEqual(asked, [4, 2]);
    assert.deepEqual(
      measured.map(({ speed }) => speed),
      [40, 20, 4, 3, 2, 1],
    );
  });

  it("tries variations of the two best", async () => {
    const clock = { ms: 0 };
    const candidates = [3, 2, 1].map((speed) => new Scripted("wasm", speed, clock));
    const asked: number[] = [];
    const variationsOf = ({ speed }: Scripted) => {
      asked.push(speed);
      return [new Scripted("wasm", speed * 1.1, clock)];
    };
    const { measured } = await search({ ...optionsOf(candidates, clock), variationsOf });
    assert.deepEqual(asked, [3, 2]);
    assert.ok(Math.abs((measured[0]?.speed ?? 0) - 3.3) < 1e-9);
  });

  it("weighs quality as the profile says", async () => {
    const clock = { ms: 0 };
    const candidates = [new Scripted("wasm", 10, clock), new Scripted("wasm", 11, clock, "acceptable")];
    for (const [profile, speed] of [
      ["fast", 11],
      ["balanced", 10],
      ["quality", 10],
    ] as const) {
      const { measured } = await search({ ...optionsOf(candidates, clock), profile });
      assert.equal(measured[0]?.speed, speed, profile);
    }
  });

  it("ends in time, with one measurement at least", async () => {
    const clock = { ms: 0 };
    const candidates = Array.from({ length: 10 }, (_, i) => new Scripted("wasm", i + 1, clock));
    const found = await search({ ...optionsOf(candidates, clock), deadlineMs: 550 });
    // A measurement takes 100 ms, so the last one starts before 450 ms and ends at 500 ms.
    assert.deepEqual([clock.ms, found.measured.length, found.isCut], [500, 5, true]);
    const none = await search({ ...optionsOf([new Scripted("wasm", 1, clock)], clock), deadlineMs: 0 });
    assert.deepEqual([none.measured.length, none.isCut], [1, true]);
  });

  it("leaves out what cannot run, and says why", async () => {
    const clock = { ms: 0 };
    const broken = new Scripted("llama", 9, clock, "baseline", "no such kernel");
    const { measured, warnings } = await search(optionsOf([broken, new Scripted("wasm", 1, clock)], clock));
    assert.deepEqual(
      measured.map(({ engine }) => engine),
      ["wasm"],
    );
    assert.equal(warnings.length, 1);
    assert.match(warnings[0] ?? "", /^llama cannot run type 9: /);
  });
});
