// `bench speech`: speech out and in over HTTP. Sentences are spoken by a Piper voice and transcribed by Whisper; a text model streams
// beside a speech job. Damaged files are read by `bench mutants`.
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import arg from "arg";
import { defaultPackage } from "../../engines/files/hub/catalog.ts";
import { ServerError } from "../../runtime/errors.ts";
import { type RunningServer, startCommand } from "../../test/fixtures/serve.ts";
import { piperVoice } from "../../test/fixtures/speech/piper-voice.ts";
import { atLeast, atMost, type Finding, findingsTable, told } from "../overload/finding.ts";
import { report } from "../results.ts";
import { percentiles } from "../serving/client/statistics.ts";
import { gapsOf } from "../stream-gaps.ts";
import { sentences, wordErrors, wordsOf } from "./sentences.ts";

export const usage = `npm run bench -- speech --whisper FOLDER [FLAGS]: speech out and in

  --whisper FOLDER      Whisper-base in ONNX, in the layout of the model hub
  --clips FOLDER        write the clips that Whisper-base is compared on, and what it wrote (texts.json)
  --reference FILE      texts of another implementation for these clips, a JSON list
  --stream-tokens 400   tokens of a text stream
  --save                write bench/results/speech.md
`;

const bytesPerSecond = 2 * 22_050;
const clipCount = 20;

export async function main(argv: readonly string[]): Promise<void> {
  const flags = arg(
    {
      "--whisper": String,
      "--clips": String,
      "--reference": String,
      "--stream-tokens": Number,
      "--save": Boolean,
    },
    { argv: [...argv] },
  );
  const whisper = flags["--whisper"];
  if (whisper === undefined) throw new ServerError("config_invalid", "expected --whisper FOLDER; got none");
  const folder = mkdtempSync(join(tmpdir(), "troupe-bench-speech-"));
  try {
    const load = loadavg()[0]?.toFixed(1);
    const findings: Finding[] = [];
    const server = await startServer(folder, whisper);
    try {
      const clips = await speakSentences(server, findings);
      const texts = await transcribeClips(server, clips, findings);
      if (flags["--clips"] !== undefined) saveClips(flags["--clips"], clips, texts);
      if (flags["--reference"] !== undefined) compare(flags["--reference"], texts, findings);
      await streamBeside(server, flags["--stream-tokens"] ?? 400, findings);
    } finally {
      await server.stop();
    }
    report(
      {
        name: "speech",
        title: "Speech",
        method:
          "50 sentences spoken by the Piper voice en_US-joe-medium and transcribed by Whisper-base (ONNX, 32-bit floats) of the same server, " +
          "2 threads each, at nice 15. First audio: the first bytes at the client, one request at a time. The gaps are those between two pieces of " +
          "one text stream (SmolLM2-135M), alone and while 12 sentences are spoken. Load of the machine by other programs at the " +
          `beginning (load average of a minute): ${load}.`,
        body: findingsTable("speech", findings),
      },
      flags["--save"] ?? false,
    );
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function startServer(folder: string, whisper: string): Promise<RunningServer> {
  const config = join(folder, "troupe.toml");
  const entries = [
    [defaultPackage, "chat"],
    [await piperVoice(), "voice"],
    [whisper, "ears"],
  ].map(([source, alias]) => `[[models]]\nmodel_id = ${JSON.stringify(source)}\nalias = "${alias}"\n`);
  const head = `command = "serve"\n[server]\nport = 0\nhost = "127.0.0.1"\n[speech]\nthreads = 2\n[troupe]\nstate_dir = "none"\n`;
  writeFileSync(config, head + entries.join(""));
  const server = await startCommand(["from-config", "-f", config]);
  await speak(server, "This is a test.");
  await transcribe(server, await speak(server, "This is a test.").then(({ wav }) => wav));
  return server;
}

interface Spoken {
  readonly wav: Buffer;
  readonly firstMs: number;
  readonly totalMs: number;
}

async function speak(server: RunningServer, input: string): Promise<Spoken> {
  const startMs = performance.now();
  const reply = await fetch(`${server.url}/v1/audio/speech`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "voice", input, response_format: "wav" }),
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

async function transcribe(server: RunningServer, wav: Uint8Array): Promise<string> {
  const form = new FormData();
  form.set("model", "ears");
  form.set("language", "en");
  form.set("file", new Blob([new Uint8Array(wav)]), "clip.wav");
  const reply = await fetch(`${server.url}/v1/audio/transcriptions`, { method: "POST", body: form });
  if (!reply.ok) throw new Error(await reply.text());
  return ((await reply.json()) as { text: string }).text;
}

async function speakSentences(server: RunningServer, findings: Finding[]): Promise<readonly Buffer[]> {
  const spoken: Spoken[] = [];
  for (const sentence of sentences) spoken.push(await speak(server, sentence));
  const seconds = spoken.reduce((sum, { wav }) => sum + (wav.length - 44) / bytesPerSecond, 0);
  const busySeconds = spoken.reduce((sum, { totalMs }) => sum + totalMs, 0) / 1000;
  const first = percentiles(spoken.map(({ firstMs }) => firstMs));
  findings.push(
    told("audio of 50 sentences", `${seconds.toFixed(1)} s`),
    atMost("speaking: seconds a second of audio", busySeconds / seconds, 0.3),
    told("first audio: p50, p99", `${Math.round(first.p50)}, ${Math.round(first.p99)} ms`),
    atMost("first audio p50 (ms)", Math.round(first.p50), 300),
  );
  return spoken.map(({ wav }) => wav);
}

async function transcribeClips(
  server: RunningServer,
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
    atMost("word errors of the transcripts (%)", (100 * errors) / total, 10),
    told("a clip transcribed in", `${Math.round(perClipMs)} ms`),
  );
  return texts;
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

async function streamBeside(server: RunningServer, tokens: number, findings: Finding[]): Promise<void> {
  const alone = percentiles(await gapsOf(server.url, tokens));
  let isStreaming = true;
  const text = sentences.slice(0, 12).join(" ");
  let jobs = 0;
  const speaking = (async () => {
    while (isStreaming) {
      await speak(server, text);
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
