// ERNIE 4.5, dense: Llama whose heads are rotated by neighbouring values in the official class, too.
import type { CheckpointArchitecture } from "./architecture.ts";
import { attention, ends, feedForward, preNorms } from "./changes.ts";

export const ernie45: CheckpointArchitecture = {
  name: "ernie4_5",
  classes: ["Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"],
  prefixes: ["ernie."],
  defaults: { rms_norm_eps: 1e-5 },
  tensors: { ...ends, ...preNorms, ...attention, ...feedForward },
};
