// Sampling keys of one model: default values of the request fields for sampling. Part of the table in keys.ts.
import type { Key } from "../key.ts";
import { integer, numberAboveTo, numberFrom } from "../kinds.ts";

/**
 * Returns the default of a key: the model's own value, from its file or the generation_config.json next to it; else `builtIn`.
 */
const ofModel = (builtIn: number) => ({ default: null, defaultSays: `the model's own, or \`${builtIn}\`` }) as const;

export const samplingKeys = {
  temperature: {
    ...numberFrom(0, 2),
    ...ofModel(0.8),
    everyday: true,
    help: "Sampling temperature of requests without one; 0 is greedy decoding",
  },
  topK: {
    ...integer(0),
    ...ofModel(40),
    help: "Number of most likely tokens to sample from, for requests without top_k; 0 = all",
  },
  topP: {
    ...numberAboveTo(0, 1),
    ...ofModel(0.95),
    help: "Probability mass of the tokens to sample from, for requests without top_p; 1 = all",
  },
  minP: {
    ...numberFrom(0, 1),
    ...ofModel(0.05),
    help: "Minimum probability of a token as a fraction of the most likely one's, for requests without min_p; 0 = none",
  },
  repetitionPenalty: {
    ...numberAboveTo(0, 100),
    ...ofModel(1),
    help: "Factor that makes repeated tokens less likely, for requests without repetition_penalty; 1 = off",
  },
  presencePenalty: {
    ...numberFrom(-2, 2),
    ...ofModel(0),
    help: "Subtracted from the logits of tokens that occur in the output, for requests without presence_penalty",
  },
  frequencyPenalty: {
    ...numberFrom(-2, 2),
    ...ofModel(0),
    help: "Subtracted for each occurrence in the output, for requests without frequency_penalty",
  },
} as const satisfies Record<string, Key>;
