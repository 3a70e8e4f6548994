// Voices of OpenAI: clients name them by default, so each stands for a voice of the model.
import type { SpeechVoice } from "../../../engines/speech/speech.ts";

const names = "alloy ash ballad coral echo fable onyx nova sage shimmer verse marin cedar".split(" ");

/**
 * Returns the voice of the model for a voice name of OpenAI: the one with the same name (am_onyx for onyx), else any in the language
 * of the first voice. null: not a name of OpenAI.
 */
export function openaiVoice(name: string, voices: readonly SpeechVoice[]): SpeechVoice | null {
  const index = names.indexOf(name);
  if (index < 0) return null;
  const [first] = voices;
  const alike = voices.filter(({ language }) => languageOf(language) === languageOf(first?.language ?? ""));
  return alike.find(({ id }) => id.endsWith(`_${name}`)) ?? alike[index % alike.length] ?? null;
}

/** Returns the language of a tag: en for en-us. */
function languageOf(tag: string): string {
  return tag.split("-")[0] ?? tag;
}

/** Returns the voices of OpenAI that stand for a voice. */
export function openaiNamesOf(id: string, voices: readonly SpeechVoice[]): string[] {
  return names.filter((name) => openaiVoice(name, voices)?.id === id);
}
