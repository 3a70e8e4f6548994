// `bench speech`: speech synthesis and transcription over HTTP. Piper and Kokoro voices speak sentences, and Whisper transcribes them.
// It also measures a text model's stream while a speech job runs. `bench mutants` tests damaged audio files.
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import arg from "arg";
import { defaultPackage } from "../../engines/files/hub/catalog.ts";
import { ServerError } from "../../runtime/errors.ts";
import { type RunningServer, startCommand } from "../../test/fixtures/serve.ts";
import { kokoroFolders } from "../../test/fixtures/speech/kokoro-model.ts";
import { piperVoice } from "../../test/fixtures/speech/piper-voice.ts";
import { atLeast, atMost, type Finding, findingsTable, told } from "../overload/finding.ts";
import { report } from "../results.ts";
import { percentiles } from "../serving/client/statistics.ts";
import { gapsOf } from "../stream-gaps.ts";
import { japaneseSentences, phonemesHeard, sentences, wordErrors, wordsOf } from "./sentences.ts";

export const usage = `npm run bench -- speech --whisper FOLDER [FLAGS]: speech synthesis and transcription

  --whisper FOLDER      Whisper-base in ONNX, in the layout of the model hub; without it nothing is transcribed
  --voice piper         speech model: piper or kokoro; repeatable; only the first one is also measured during a text stream
  --clips FOLDER        write the spoken clips and Whisper's transcripts of them (texts.json) to this folder
  --reference FILE      JSON list of another implementation's transcripts of these clips, to compare with
  --stream-tokens 400   tokens of a text stream
  --save                write bench/results/speech.md
`;

const clipCount = 20;
/** English voice of each speech model, by the model's alias. */
const englishVoices: Readonly<Record<string, string>> = { piper: "en_US-joe-medium", kokoro: "af_heart" };

export async function main(argv: readonly string[]): Promise<void> {
  const flags = arg(
    {
      "--whisper": String,
      "--voice": [String],
      "--clips": String,
      "--reference": String,
      "--stream-tokens": Number,
      "--save": Boolean,
    },
    { argv: [...argv] },
  );
  const whisper = flags["--whisper"];
  const voices = flags["--voice"] ?? ["piper"];
  const unknown = voices.find((voice) => englishVoices[voice] === undefined);
  if (unknown !== undefined)
    throw new ServerError("config_invalid", `expected --voice piper or kokoro; got ${unknown}`);
  const folder = mkdtempSync(join(tmpdir(), "troupe-bench-speech-"));
  try {
    const load = loadavg()[0]?.toFixed(1);
    const findings: Finding[] = [];
    const server = await startServer(folder, whisper, voices);
    try {
      for (const [i, voice] of voices.entries()) {
        const clips = await speakSentences(server, voice, findings);
        const texts = whisper === undefined ? [] : await transcribeClips(server, voice, clips, findings);
        if (i > 0) continue;
        if (flags["--clips"] !== undefined) saveClips(flags["--clips"], clips, texts);
        if (flags["--reference"] !== undefined) compare(flags["--reference"], texts, findings);
      }
      if (voices.includes("kokoro") && whisper !== undefined) await speakJapanese(server, findings);
      const [first = ""] = voices;
      await streamBeside(server, first, flags["--stream-tokens"] ?? 400, findings);
    } finally {
      await server.stop();
    }
    const named: Readonly<Record<string, string>> = {
      piper: "the Piper voice en_US-joe-medium",
      kokoro: "Kokoro-82M in 8-bit numbers (voice af_heart)",
    };
    report(
      {
        name: "speech",
        title: "Speech",
        method:
          `50 sentences spoken by ${voices.map((voice) => named[voice]).join(", and by ")}` +
          `${whisper === undefined ? "" : ", and transcribed by Whisper-base (ONNX, 32-bit floats) of the same server"}, ` +
          "2 threads each, at nice 15. First audio: the first bytes at the client, one request at a time. " +
          "The gaps are those between two pieces of one text stream (SmolLM2-135M), alone and while the first voice speaks 12 sentences. " +
          `Load of the machine by other programs at the beginning (load average of a minute): ${load}.`,
        body: findingsTable("speech", findings),
      },
      flags["--save"] ?? false,
    );
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function startServer(
  folder: string,
  whisper: string | undefined,
  voices: readonly string[],
): Promise<RunningServer> {
  const config = join(folder, "troupe.toml");
  const pathOf = async (voice: string) => (voice === "piper" ? await piperVoice() : (await kokoroFolders()).hub);
  const speaking = await Promise.all(voices.map(async (voice) => [await pathOf(voice), voice]));
  const transcribing = whisper === undefined ? [] : [[whisper, "whisper"]];
  const entries = [[defaultPackage, "chat"], ...speaking, ...transcribing].map(
    ([source, alias]) => `[[models]]\nmodel_id = ${JSON.stringify(source)}\nalias = "${alias}"\n`,
  );
  const head = `command = "serve"\n[server]\nport = 0\nhost = "127.0.0.1"\n[speech]\nthreads = 2\n[troupe]\nstate_dir = "none"\n`;
  writeFileSync(config, head + entries.join(""));
  const server = await startCommand(["from-config", "-f", config]);
  for (const voice of voices) {
    const { wav } = await speak(server, voice, "This is a test.");
    if (whisper !== undefined) await transcribe(server, wav);
  }
  return server;
}

interface Spoken {
  readonly wav: Buffer;
  readonly firstMs: number;
  readonly totalMs: number;
}

async function speak(
  server: RunningServer,
  model: string,
  input: string,
  voice = englishVoices[model],
): Promise<Spoken> {
  const startMs = performance.now();
  const reply = await fetch(`${server.url}/v1/audio/speech`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model, input, voice, response_format: "wav" }),
  });
  if (!reply.ok || reply.body === null) throw new Error(await reply.text());
  let firstMs = 0;
  const pieces: Uint8Array[] = [];
  for await (const piece of reply.body as unknown as AsyncIterable<Uint8Array>) {
    if (pieces.length === 0) firstMs = performance.now() - startMs;
    pieces.push(piece);
  }
  return { wav: Buffer.concat(pieces), firstMs, totalMs: performance.now() - startMs };
}

async function transcribe(server: RunningServer, wav: Uint8Array, language = "en"): Promise<string> {
  const form = new FormData();
  form.set("model", "whisper");
  form.set("language", language);
  form.set("file", new Blob([new Uint8Array(wav)]), "clip.wav");
  const reply = await fetch(`${server.url}/v1/audio/transcriptions`, { method: "POST", body: form });
  if (!reply.ok) throw new Error(await reply.text());
  return ((await reply.json()) as { text: string }).text;
}

/** Returns the length of a WAV file in seconds. */
function secondsOf(wav: Buffer): number {
  return (wav.length - 44) / wav.readUInt32LE(28);
}

async function speakSentences(server: RunningServer, voice: string, findings: Finding[]): Promise<readonly Buffer[]> {
  const spoken: Spoken[] = [];
  for (const sentence of sentences) spoken.push(await speak(server, voice, sentence));
  const seconds = spoken.reduce((sum, { wav }) => sum + secondsOf(wav), 0);
  const busySeconds = spoken.reduce((sum, { totalMs }) => sum + totalMs, 0) / 1000;
  const first = percentiles(spoken.map(({ firstMs }) => firstMs));
  const isLarge = voice === "kokoro";
  findings.push(
    told(`${voice}: audio of 50 sentences`, `${seconds.toFixed(1)} s`),
    atMost(`${voice}: seconds a second of audio`, busySeconds / seconds, isLarge ? 1 : 0.3),
    told(`${voice}: first audio, p50, p99`, `${Math.round(first.p50)}, ${Math.round(first.p99)} ms`),
    ...(isLarge ? [] : [atMost(`${voice}: first audio, p50 (ms)`, Math.round(first.p50), 300)]),
  );
  return spoken.map(({ wav }) => wav);
}

async function transcribeClips(
  server: RunningServer,
  voice: string,
  clips: readonly Buffer[],
  findings: Finding[],
): Promise<readonly string[]> {
  const texts: string[] = [];
  const startMs = performance.now();
  for (const wav of clips) texts.push(await transcribe(server, wav));
  const perClipMs = (performance.now() - startMs) / clips.length;
  const total = sentences.reduce((sum, sentence) => sum + wordsOf(sentence).length, 0);
  const errors = sentences.reduce((sum, one, i) => sum + wordErrors(wordsOf(one), wordsOf(texts[i] ?? "")), 0);
  findings.push(
    atMost(`${voice}: word errors of the transcripts (%)`, (100 * errors) / total, 10),
    told(`${voice}: a clip transcribed in`, `${Math.round(perClipMs)} ms`),
  );
  return texts;
}

/** Speaks and transcribes Japanese sentences. Compares phonemes, because the same word can be written in kanji or in kana. */
async function speakJapanese(server: RunningServer, findings: Finding[]): Promise<void> {
  let [errors, total] = [0, 0];
  for (const sentence of japaneseSentences) {
    const { wav } = await speak(server, "kokoro", sentence, "jf_alpha");
    const [spoken, heard] = await Promise.all([sentence, await transcribe(server, wav, "ja")].map(phonemesHeard));
    errors += wordErrors(spoken ?? [], heard ?? []);
    total += spoken?.length ?? 0;
  }
  findings.push(
    told("kokoro, Japanese: phoneme errors of the transcripts", `${((100 * errors) / total).toFixed(1)} %`),
  );
}

function saveClips(folder: string, clips: readonly Buffer[], texts: readonly string[]): void {
  mkdirSync(folder, { recursive: true });
  for (const [i, wav] of clips.slice(0, clipCount).entries()) writeFileSync(join(folder, `${i}.wav`), wav);
  writeFileSync(join(folder, "texts.json"), JSON.stringify(texts.slice(0, clipCount), null, 2));
}

function compare(path: string, texts: readonly string[], findings: Finding[]): void {
  const others = JSON.parse(readFileSync(path, "utf8")) as readonly string[];
  const same = others.filter((text, i) => text.trim() === texts[i]?.trim()).length;
  findings.push(atLeast("clips with the text of the reference (%)", (100 * same) / others.length, 95));
}

async function streamBeside(server: RunningServer, voice: string, tokens: number, findings: Finding[]): Promise<void> {
  const alone = percentiles(await gapsOf(server.url, tokens));
  let isStreaming = true;
  const text = sentences.slice(0, 12).join(" ");
  let jobs = 0;
  const speaking = (async () => {
    while (isStreaming) {
      await speak(server, voice, text);
      jobs++;
    }
  })();
  await sleep(500);
  const beside = percentiles(await gapsOf(server.url, tokens));
  isStreaming = false;
  await speaking;
  findings.push(
    told("gaps of a text stream alone: p50, p99", `${alone.p50.toFixed(1)}, ${alone.p99.toFixed(1)} ms`),
    told("gaps beside a speech job: p50, p99", `${beside.p50.toFixed(1)}, ${beside.p99.toFixed(1)} ms (${jobs} jobs)`),
    atMost("p99 gap beside a speech job over alone", beside.p99 / alone.p99, 2),
  );
}
