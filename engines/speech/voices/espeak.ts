// espeak-ng as a speech model without weights: the system's program speaks with its own voices.
import { ServerError } from "../../../runtime/errors.ts";
import type { Phrase, SpeakingModel, SpeechCard } from "../speech.ts";
import { espeakVersion, runEspeak } from "./espeak-process.ts";

/** Words per minute at speed 1. */
const ownRate = 175;
const headBytes = 44;
const sampleRate = 22_050;
const defaultVoice = "en-us";

export async function openEspeak(): Promise<SpeakingModel> {
  const version = await espeakVersion();
  const listed = await runEspeak(["--voices"], "", new AbortController().signal);
  const languages = listed
    .toString()
    .split("\n")
    .slice(1)
    .flatMap((line) => /^\s*\d+\s+([\w-]+)/u.exec(line)?.[1] ?? []);
  const ids = [defaultVoice, ...languages.filter((language) => language !== defaultVoice)];
  const card: SpeechCard = {
    engine: "espeak",
    task: "speak",
    backend: `espeak-ng ${version}`,
    weightBytes: 0,
    sampleRate,
    voices: ids.map((id) => ({ id, language: id })),
    languages: [],
  };
  return { card, speak, dispose: async () => {} };
}

async function speak({ text, voice, speed, signal }: Phrase): Promise<Float32Array> {
  const rate = String(Math.round(ownRate * speed));
  const wav = await runEspeak(["--stdout", "-v", voice, "-s", rate], text, signal);
  if (wav.length < headBytes || wav.toString("latin1", 0, 4) !== "RIFF" || wav.readUInt32LE(24) !== sampleRate) {
    throw new ServerError("model_failed", "espeak-ng returned no audio");
  }
  const samples = new Float32Array((wav.length - headBytes) >> 1);
  for (let i = 0; i < samples.length; i++) samples[i] = wav.readInt16LE(headBytes + 2 * i) / 32_768;
  return samples;
}
