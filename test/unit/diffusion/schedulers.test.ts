// Schedulers compared with Python's diffusers (test/fixtures/diffusion/make-scheduler-reference.py recorded the results): with the
// same noise and model, the latents after each step are the same.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { readSchedulerConfig, type SchedulerName } from "../../../engines/diffusion/schedulers/config.ts";
import { openScheduler } from "../../../engines/diffusion/schedulers/open-scheduler.ts";
import { JsonField } from "../../../engines/files/json-field.ts";

interface Case {
  readonly scheduler: SchedulerName;
  readonly config: Readonly<Record<string, unknown>>;
  readonly steps: number;
  readonly initialScale: number;
  readonly timesteps: readonly number[];
  /** Latents after each step, or only after the last one. */
  readonly latents: readonly (readonly number[])[];
}

const fixture = new URL("../../../../test/fixtures/diffusion/scheduler-reference.json", import.meta.url);
const { cases } = JSON.parse(readFileSync(fixture, "utf8")) as { readonly cases: readonly Case[] };
const size = 5;
const mostRelativeError = 1e-4;

function noiseOf(step: number): Float32Array {
  return Float32Array.from({ length: size }, (_, i) => 1.3 * Math.cos(12.9898 * i + 78.233 * step));
}

function model(scaled: Float32Array, timestep: number): Float32Array {
  return scaled.map((value, i) => Math.tanh(value) * (0.4 + (0.6 * timestep) / 1000) + 0.2 * Math.cos(i));
}

/** Returns the latents after each step. */
function latentsOf({ scheduler: name, config, steps }: Case): {
  timesteps: readonly number[];
  latents: Float32Array[];
} {
  const scheduler = openScheduler(name, readSchedulerConfig(field(config)), steps);
  const sample = noiseOf(100).map((value) => value * scheduler.initialScale);
  const latents = scheduler.timesteps.map((timestep, index) => {
    const scale = scheduler.inputScale(index);
    const output = model(
      sample.map((value) => value * scale),
      timestep,
    );
    scheduler.step(index, output, sample, scheduler.takesNoise(index) ? noiseOf(index) : null);
    return sample.slice();
  });
  return { timesteps: scheduler.timesteps, latents };
}

function field(config: unknown): JsonField {
  return new JsonField("scheduler_config.json", "", config);
}

function relativeError(got: Float32Array, wanted: readonly number[]): number {
  const most = Math.max(...wanted.map(Math.abs));
  return Math.max(...wanted.map((value, i) => Math.abs(value - (got[i] as number)))) / most;
}

describe("diffusion schedulers", () => {
  for (const name of new Set(cases.map(({ scheduler }) => scheduler))) {
    const own = cases.filter(({ scheduler }) => scheduler === name);
    it(`${name}: has the same latents as diffusers after each step, in ${own.length} configurations`, () => {
      for (const one of own) {
        const { timesteps, latents } = latentsOf(one);
        const label = JSON.stringify({ ...one.config, steps: one.steps });
        assert.equal(timesteps.length, one.timesteps.length, label);
        timesteps.forEach((value, i) => {
          assert.ok(Math.abs(value - (one.timesteps[i] as number)) < 0.01, `${label}: timestep ${i} is ${value}`);
        });
        const shown = one.latents.length === 1 ? latents.slice(-1) : latents;
        shown.forEach((got, step) => {
          const error = relativeError(got, one.latents[step] as readonly number[]);
          assert.ok(error <= mostRelativeError, `${label}: step ${step}: error ${error}`);
        });
      }
    });
  }

  it("rejects unsupported settings, and names the field", () => {
    const refused = (config: object) => () => readSchedulerConfig(field({ _class_name: "DDIMScheduler", ...config }));
    assert.throws(refused({ thresholding: true }), /thresholding is set/);
    assert.throws(refused({ beta_schedule: "sigmoid" }), /beta_schedule is "sigmoid"; expected linear/);
    assert.throws(refused({ _class_name: "HeunDiscreteScheduler" }), /_class_name is not built; expected one of Euler/);
    assert.throws(refused({ num_train_timesteps: -1 }), /num_train_timesteps is -1/);
    assert.throws(refused({ beta_end: 2 }), /beta_end is 2/);
  });

  it("refuses more steps than the model was trained for", () => {
    const config = readSchedulerConfig(field({ _class_name: "LCMScheduler" }));
    assert.throws(() => openScheduler("lcm", config, 51), /from 1 to 50 for this model and scheduler, got 51/);
    assert.throws(() => openScheduler("euler", config, 0), /got 0/);
  });
});
