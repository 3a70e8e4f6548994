// Schedulers by name.
import type { SchedulerConfig, SchedulerName } from "./config.ts";
import { ddimScheduler } from "./ddim.ts";
import { dpmSolver } from "./dpm-solver.ts";
import { eulerScheduler } from "./euler.ts";
import { lcmScheduler } from "./lcm.ts";
import { pndmScheduler } from "./pndm.ts";
import type { Scheduler } from "./scheduler.ts";

const schedulers: Readonly<Record<SchedulerName, (config: SchedulerConfig, steps: number) => Scheduler>> = {
  euler: (config, steps) => eulerScheduler(config, steps, false),
  euler_ancestral: (config, steps) => eulerScheduler(config, steps, true),
  dpmpp_2m: (config, steps) => dpmSolver(config, steps, false),
  dpmpp_2m_karras: (config, steps) => dpmSolver(config, steps, true),
  ddim: ddimScheduler,
  lcm: lcmScheduler,
  pndm: pndmScheduler,
};

/** Returns a scheduler for one image. Throws invalid_value if it does not support this number of steps. */
export function openScheduler(name: SchedulerName, config: SchedulerConfig, steps: number): Scheduler {
  return schedulers[name](config, steps);
}
