// OpenAI voices: clients use OpenAI's voice names by default, so each name is mapped to a voice of the model.
import type { SpeechVoice } from "../../../engines/speech/speech.ts";

const names = "alloy ash ballad coral echo fable onyx nova sage shimmer verse marin cedar".split(" ");

/**
 * Returns the model's voice for an OpenAI voice name: the voice with the same name (am_onyx for onyx), else some voice in the
 * language of the model's first voice. null = not an OpenAI voice name.
 */
export function openaiVoice(name: string, voices: readonly SpeechVoice[]): SpeechVoice | null {
  const index = names.indexOf(name);
  if (index < 0) return null;
  const [first] = voices;
  const alike = voices.filter(({ language }) => languageOf(language) === languageOf(first?.language ?? ""));
  return alike.find(({ id }) => id.endsWith(`_${name}`)) ?? alike[index % alike.length] ?? null;
}

/** Returns the language part of a language tag: en for en-us. */
function languageOf(tag: string): string {
  return tag.split("-")[0] ?? tag;
}

/** Returns the OpenAI voice names that are mapped to a voice of the model. */
export function openaiNamesOf(id: string, voices: readonly SpeechVoice[]): string[] {
  return names.filter((name) => openaiVoice(name, voices)?.id === id);
}
