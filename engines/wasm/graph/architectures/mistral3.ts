// mistral3: Mistral Small 3.1 and 3.2, and Ministral 3. Like llama; Ministral has YaRN and an attention temperature.

import { usualYarn } from "../ropes.ts";
import type { Architecture } from "./architecture.ts";
import { llama } from "./llama.ts";

const turns = { above: 0, below: 1e6 };
const multipliers = { above: 0, below: 1000 };

export const mistral3: Architecture = {
  ...llama,
  name: "mistral3",
  readTraits(keys, { rotated, headLength }) {
    // The rotation of a query applies the attention temperature, so every element of a head must be rotated.
    if (rotated !== headLength) throw keys.unsupported("rope.dimension_count", String(headLength));
    const yarn = {
      fast: keys.number("rope.scaling.yarn_beta_fast", turns, usualYarn.fast),
      slow: keys.number("rope.scaling.yarn_beta_slow", turns, usualYarn.slow),
      logMultiplier: keys.numberOr("rope.scaling.yarn_log_multiplier", multipliers, 0),
    };
    return { rope: { yarn, temperatureScale: keys.numberOr("attention.temperature_scale", multipliers, 0) } };
  },
};
