// Default sampling settings and token limit of a model, under the names of the request fields.
import type { GenerationDefaults } from "../../../engines/sampling-defaults.ts";

export function wireDefaults({ sampling, maxTokens }: GenerationDefaults) {
  return {
    temperature: sampling.temperature,
    top_k: sampling.topK,
    top_p: sampling.topP,
    min_p: sampling.minP,
    repetition_penalty: sampling.repetitionPenalty,
    presence_penalty: sampling.presencePenalty,
    frequency_penalty: sampling.frequencyPenalty,
    max_tokens: maxTokens,
  };
}
