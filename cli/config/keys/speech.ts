// Keys of speech models: number of threads, and limits on texts and audio. Part of the table in keys.ts.
import type { Key } from "../key.ts";
import { integer } from "../kinds.ts";
import { byteSize } from "../values/memory-budget.ts";

export const speechKeys = {
  threads: {
    ...integer(1, 64),
    default: 2,
    flag: "--speech-threads",
    help: "Number of compute threads per speech model; they have a lower priority than those of other models",
  },
  maxInputChars: {
    ...integer(1, 1_000_000),
    default: 4096,
    help: "Maximum length of a text to speak in characters; a longer one is refused",
  },
  maxSpeechSecs: {
    ...integer(1, 24 * 3600),
    default: 1200,
    help: "Maximum length of the audio of one answer in seconds; a longer one is ended with an error",
  },
  maxAudioBytes: {
    // A request body has at most 50 MiB; the rest is for the form's other fields.
    ...byteSize(1024, 49 * 2 ** 20),
    default: 25 * 2 ** 20,
    defaultSays: "`25MiB`",
    help: "Maximum size of an audio file to transcribe; a larger one is refused",
  },
  maxAudioSecs: {
    ...integer(1, 4 * 3600),
    default: 1800,
    help: "Maximum length in seconds of an audio file to transcribe, or of audio in a prompt; a longer one is refused",
  },
} as const satisfies Record<string, Key>;
