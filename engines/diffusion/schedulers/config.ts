// Scheduler configuration: the supported fields of scheduler_config.json. A field that would change the result in an unsupported way causes
// an error that names the field.
import { ServerError } from "../../../runtime/errors.ts";
import type { JsonField } from "../../files/json-field.ts";
import type { Prediction } from "./scheduler.ts";

/** Names by which requests and settings choose a scheduler. */
export const schedulerNames = [
  "euler",
  "euler_ancestral",
  "dpmpp_2m",
  "dpmpp_2m_karras",
  "ddim",
  "lcm",
  "pndm",
] as const;

export type SchedulerName = (typeof schedulerNames)[number];

const betaSchedules = ["linear", "scaled_linear", "squaredcos_cap_v2"] as const;
const spacings = ["leading", "trailing", "linspace"] as const;
const predictions = ["epsilon", "v_prediction", "sample"] as const;

export interface SchedulerConfig {
  /** Scheduler that the model's folder names. */
  readonly name: SchedulerName;
  /** Number of timesteps in training. */
  readonly trainTimesteps: number;
  readonly betaStart: number;
  readonly betaEnd: number;
  readonly betaSchedule: (typeof betaSchedules)[number];
  readonly prediction: Prediction;
  /** Spacing of the timesteps; null = the scheduler's own default. */
  readonly spacing: (typeof spacings)[number] | null;
  readonly stepsOffset: number;
  /**
   * DDIM and PNDM: whether no noise remains after the last step (true), or the noise of training timestep 0 (false); null = the
   * scheduler's own default.
   */
  readonly setAlphaToOne: boolean | null;
  /** DPM++ and Euler: noise that remains after the last step: none ("zero"), or that of training timestep 0 ("sigma_min"). */
  readonly finalSigma: "zero" | "sigma_min";
  readonly karras: boolean;
  /** DPM++: order and variant of the solver. */
  readonly solverOrder: 1 | 2;
  readonly solverType: "midpoint" | "heun";
  /** DPM++: whether the last step is of first order: `lowerOrderFinal` applies to images with few steps, `eulerAtFinal` to all. */
  readonly lowerOrderFinal: boolean;
  readonly eulerAtFinal: boolean;
  /** LCM: number of timesteps in distillation, and the factor of the timesteps in the boundary conditions. */
  readonly originalSteps: number;
  readonly timestepScaling: number;
}

const classes: Readonly<Record<string, SchedulerName>> = {
  EulerDiscreteScheduler: "euler",
  EulerAncestralDiscreteScheduler: "euler_ancestral",
  DPMSolverMultistepScheduler: "dpmpp_2m",
  DDIMScheduler: "ddim",
  LCMScheduler: "lcm",
  PNDMScheduler: "pndm",
};

const mostTimesteps = 100_000;

/** Fields that must be absent, null or false, because the features that they enable are not supported. */
const refusedFields = [
  "trained_betas",
  "thresholding",
  "clip_sample",
  "rescale_betas_zero_snr",
  "use_exponential_sigmas",
  "use_beta_sigmas",
  "use_lu_lambdas",
  "use_flow_sigmas",
  "use_dynamic_shifting",
  "variance_type",
  "sigma_min",
  "sigma_max",
] as const;

/** Fields that must be absent or have this value. */
const fixedFields: Readonly<Record<string, string>> = { interpolation_type: "linear", timestep_type: "discrete" };

/** Reads the content of a scheduler_config.json. Throws model_file_invalid, naming the field. */
export function readSchedulerConfig(config: JsonField): SchedulerConfig {
  const name = classes[config.get("_class_name").required(config.get("_class_name").text())];
  if (name === undefined) {
    throw config.get("_class_name").invalid(`is not built; expected one of ${Object.keys(classes).join(", ")}`);
  }
  refuseFields(config);
  const isDpm = name === "dpmpp_2m";
  if (isDpm) oneOf(config.get("algorithm_type"), ["dpmsolver++"], "dpmsolver++");
  const skipsPrk = config.get("skip_prk_steps");
  if (name === "pndm" && skipsPrk.flag() !== true) throw skipsPrk.invalid("is not true; only the PLMS steps are built");
  // The defaults are those of diffusers, the library that writes these files.
  const isLcm = name === "lcm";
  const order = config.get("solver_order").count(9) ?? 2;
  if (order !== 1 && order !== 2) throw config.get("solver_order").invalid(`is ${order}; expected 1 or 2`);
  return {
    name: isDpm && config.get("use_karras_sigmas").flag() === true ? "dpmpp_2m_karras" : name,
    trainTimesteps: positive(config.get("num_train_timesteps"), 1000),
    betaStart: fraction(config.get("beta_start"), isLcm ? 0.00085 : 0.0001),
    betaEnd: fraction(config.get("beta_end"), isLcm ? 0.012 : 0.02),
    betaSchedule: oneOf(config.get("beta_schedule"), betaSchedules, isLcm ? "scaled_linear" : "linear"),
    prediction: oneOf(config.get("prediction_type"), predictions, "epsilon"),
    spacing: config.get("timestep_spacing").isAbsent
      ? null
      : oneOf(config.get("timestep_spacing"), spacings, "leading"),
    stepsOffset: config.get("steps_offset").count(mostTimesteps) ?? 0,
    setAlphaToOne: config.get("set_alpha_to_one").flag(),
    finalSigma: oneOf(config.get("final_sigmas_type"), ["zero", "sigma_min"], "zero"),
    karras: config.get("use_karras_sigmas").flag() ?? false,
    solverOrder: order,
    solverType: oneOf(config.get("solver_type"), ["midpoint", "heun"], "midpoint"),
    lowerOrderFinal: config.get("lower_order_final").flag() ?? true,
    eulerAtFinal: config.get("euler_at_final").flag() ?? false,
    originalSteps: positive(config.get("original_inference_steps"), 50),
    timestepScaling: config.get("timestep_scaling").number() ?? 10,
  };
}

function refuseFields(config: JsonField): void {
  for (const key of refusedFields) {
    const field = config.get(key);
    if (field.isAbsent || field.value === false) continue;
    throw field.invalid("is set, which is not built; expected it to be absent, null or false");
  }
  for (const [key, value] of Object.entries(fixedFields)) oneOf(config.get(key), [value], value);
}

function oneOf<T extends string>(field: JsonField, values: readonly T[], otherwise: T): T {
  const text = field.text() ?? otherwise;
  const found = values.find((value) => value === text);
  if (found !== undefined) return found;
  throw field.invalid(`is ${JSON.stringify(text.slice(0, 64))}; expected ${values.join(", ")}`);
}

function positive(field: JsonField, otherwise: number): number {
  const count = field.count(mostTimesteps) ?? otherwise;
  if (count > 0) return count;
  throw field.invalid("is 0; expected a positive whole number");
}

function fraction(field: JsonField, otherwise: number): number {
  const value = field.number() ?? otherwise;
  if (value > 0 && value < 1) return value;
  throw field.invalid(`is ${value}; expected a number between 0 and 1`);
}

/** Checks a number of steps against the number of timesteps in training. Throws invalid_value for the field `steps`. */
export function checkSteps(steps: number, most: number): void {
  if (Number.isInteger(steps) && steps >= 1 && steps <= most) return;
  const message = `expected a whole number of steps from 1 to ${most} for this model and scheduler, got ${steps}`;
  throw new ServerError("invalid_value", message, { param: "steps" });
}
