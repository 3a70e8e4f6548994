// Voices of OpenAI: clients name them by default, so each stands for a voice of the model.
import type { SpeechVoice } from "../../../engines/speech/speech.ts";

const names = "alloy ash ballad coral echo fable onyx nova sage shimmer verse marin cedar".split(" ");

/** Returns the voice that a voice of OpenAI stands for; null: OpenAI has no such voice. */
export function openaiVoice(name: string, voices: readonly SpeechVoice[]): SpeechVoice | null {
  const index = names.indexOf(name);
  return index < 0 ? null : (voices[index % voices.length] ?? null);
}

/** Returns the voices of OpenAI that stand for a voice. */
export function openaiNamesOf(id: string, voices: readonly SpeechVoice[]): string[] {
  return names.filter((name) => openaiVoice(name, voices)?.id === id);
}
