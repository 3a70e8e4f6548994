// Speech with the real command: a real Piper voice with espeak-ng speaks, a tiny Whisper model transcribes, and a text model of the
// same server reads the transcript.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import OpenAI, { toFile } from "openai";
import { tinyModel } from "../../fixtures/models/models.ts";
import { type RunningServer, startCommand } from "../../fixtures/serve.ts";
import { piperVoice } from "../../fixtures/speech/piper-voice.ts";
import { tinySegments, writeTinyWhisper } from "../../fixtures/speech/tiny-whisper.ts";

const text = "Hello world. This is the second sentence!";
const written = tinySegments
  .map((segment) => segment.text)
  .join("")
  .trim();

interface Failure {
  readonly error: { readonly code: string; readonly message: string; readonly param: string };
}

describe("a server with speech models", () => {
  const folder = mkdtempSync(join(tmpdir(), "troupe-speech-"));
  let server: RunningServer;
  let client: OpenAI;
  before(async () => {
    writeTinyWhisper(join(folder, "whisper"));
    const entry = (source: string, alias: string) =>
      `[[models]]\nmodel_id = ${JSON.stringify(source)}\nalias = "${alias}"\n`;
    const config = join(folder, "troupe.toml");
    const models = [
      entry(await tinyModel(), "chat"),
      entry(await piperVoice(), "voice"),
      entry("espeak-ng", "robot"),
      entry(join(folder, "whisper"), "whisper"),
    ];
    writeFileSync(
      config,
      `command = "serve"\n[server]\nport = 0\nhost = "127.0.0.1"\n[speech]\nmax_input_chars = 200\nmax_audio_secs = 60\n` +
        `[troupe]\nengine = "wasm"\nthreads = 1\n${models.join("")}`,
    );
    server = await startCommand(["from-config", "-f", config]);
    client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none" });
  });
  after(async () => {
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  async function post(path: string, body: object): Promise<Response> {
    const headers = { "content-type": "application/json" };
    return await fetch(`${server.url}${path}`, { method: "POST", headers, body: JSON.stringify(body) });
  }

  async function refusal(path: string, body: object): Promise<Failure["error"]> {
    const reply = await post(path, body);
    assert.equal(reply.status, 400);
    return ((await reply.json()) as Failure).error;
  }

  async function spoken(body: object): Promise<Buffer> {
    const reply = await post("/v1/audio/speech", { model: "voice", input: text, response_format: "wav", ...body });
    assert.equal(reply.status, 200, await (reply.ok ? "" : reply.text()));
    return Buffer.from(await reply.arrayBuffer());
  }

  async function transcript(fields: Readonly<Record<string, string>>, audio: Uint8Array, path = "transcriptions") {
    const form = new FormData();
    for (const [name, value] of Object.entries(fields)) form.set(name, value);
    form.set("file", new Blob([new Uint8Array(audio)]), "audio.wav");
    return await fetch(`${server.url}/v1/audio/${path}`, { method: "POST", body: form });
  }

  it("speaks with a real voice, as an official client asks for it", async () => {
    const reply = await client.audio.speech.create({
      model: "voice",
      voice: "alloy",
      input: text,
      response_format: "wav",
    });
    const wav = Buffer.from(await reply.arrayBuffer());
    assert.equal(reply.headers.get("content-type"), "audio/wav");
    assert.equal(wav.toString("latin1", 0, 4), "RIFF");
    assert.equal(wav.readUInt32LE(24), 22_050);
    const seconds = (wav.length - 44) / 2 / 22_050;
    assert.ok(seconds > 1.5 && seconds < 6, `${seconds} s`);
    let loudest = 0;
    for (let at = 44; at + 1 < wav.length; at += 2) loudest = Math.max(loudest, Math.abs(wav.readInt16LE(at)));
    assert.ok(loudest > 3000, `${loudest}`);
    assert.match(server.output(), /a voice of OpenAI stands for a voice of the model.*alloy/);
  });

  it("speaks faster at a higher speed, and with espeak-ng", async () => {
    const [plain, fast] = [await spoken({}), await spoken({ speed: 2 })];
    assert.ok(fast.length < 0.7 * plain.length, `${fast.length} ${plain.length}`);
    assert.ok((await spoken({ model: "robot", voice: "en-us" })).length > 44 + 22_050);
  });

  it("sends each format, and events whose pieces are the file", async () => {
    const heads = { mp3: "fff", flac: "664c6143", opus: "4f676753", aac: "fff1" };
    for (const [format, head] of Object.entries(heads)) {
      assert.equal((await spoken({ response_format: format })).toString("hex").slice(0, head.length), head, format);
    }
    const events = (await spoken({ response_format: "pcm", stream_format: "sse" })).toString();
    const parsed = [...events.matchAll(/^data: (.*)$/gm)].map(([, data = ""]) => JSON.parse(data));
    const bytes = parsed.flatMap(({ audio }) => (audio === undefined ? [] : [Buffer.from(audio, "base64")]));
    const { seconds } = parsed.at(-1);
    assert.equal(Buffer.concat(bytes).length, Math.round(seconds * 22_050) * 2);
  });

  it("lists its voices and its models", async () => {
    const voices = (await (await fetch(`${server.url}/v1/audio/voices`)).json()) as {
      data: { id: string; model: string }[];
    };
    assert.ok(voices.data.some(({ id, model }) => model === "voice" && id === "en_US-joe-medium"));
    assert.ok(voices.data.some(({ id, model }) => model === "robot" && id === "de"));
    const models = (await (await fetch(`${server.url}/v1/models`)).json()) as {
      data: { id: string; speech?: object }[];
    };
    const speechOf = (name: string) => models.data.find(({ id }) => id === name)?.speech;
    assert.deepEqual(speechOf("voice"), { task: "speak", engine: "piper", sample_rate: 22_050, voices: 1 });
    assert.deepEqual(speechOf("whisper"), {
      task: "transcribe",
      engine: "whisper",
      sample_rate: 16_000,
      languages: ["en", "de"],
    });
    assert.equal(speechOf("chat"), undefined);
  });

  it("transcribes, as an official client asks for it, in every form", async () => {
    const file = await toFile(await spoken({}), "speech.wav");
    assert.equal((await client.audio.transcriptions.create({ model: "whisper", file })).text, written);
    const audio = await spoken({ response_format: "mp3" });
    const inForm = async (response_format: string) => (await transcript({ response_format }, audio)).text();
    assert.equal(await inForm("text"), `${written}\n`);
    assert.match(
      await inForm("srt"),
      /^1\n00:00:00,000 --> 00:00:01,000\nHello world\n\n2\n00:00:01,000 --> 00:00:01,400\n!\n$/,
    );
    assert.match(await inForm("vtt"), /^WEBVTT\n\n00:00:00\.000 --> 00:00:01\.000\nHello world\n/);
    const whole = JSON.parse(await inForm("verbose_json"));
    assert.deepEqual(
      [whole.task, whole.language, whole.text, whole.segments.length],
      ["transcribe", "english", written, 2],
    );
    const events = await (await transcript({ stream: "true" }, audio)).text();
    assert.match(
      events,
      /"transcript\.text\.delta","delta":"Hello world"[\s\S]*"transcript\.text\.done","text":"Hello world!"/,
    );
    const translated = await (await transcript({ response_format: "verbose_json" }, audio, "translations")).json();
    assert.equal((translated as { task: string }).task, "translate");
  });

  it("transcribes the audio of a conversation for a model that takes no audio", async () => {
    const data = (await spoken({ response_format: "wav" })).toString("base64");
    const part = { type: "input_audio", input_audio: { data, format: "wav" } };
    const tokensWith = async (content: readonly object[], path: string, field: string) => {
      const reply = await post(path, {
        model: "chat",
        [field]: [{ role: "user", content }],
        ...(field === "input" ? { max_output_tokens: 1 } : { max_tokens: 1 }),
      });
      const { usage } = (await reply.json()) as { usage: { prompt_tokens?: number; input_tokens?: number } };
      return usage.prompt_tokens ?? usage.input_tokens ?? 0;
    };
    const text = `[Audio of the user, transcribed by the model "whisper"]\n${written}`;
    const chat = await tokensWith([part], "/v1/chat/completions", "messages");
    assert.equal(chat, await tokensWith([{ type: "text", text }], "/v1/chat/completions", "messages"));
    const response = await tokensWith([part], "/v1/responses", "input");
    assert.equal(response, await tokensWith([{ type: "input_text", text }], "/v1/responses", "input"));
    const damaged = { type: "input_audio", input_audio: { data: Buffer.from("no audio").toString("base64") } };
    const refused = await refusal("/v1/chat/completions", {
      model: "chat",
      messages: [{ role: "user", content: [part, damaged] }],
    });
    assert.match(refused.message, /expected an audio file .*, got a file of another kind/);
    assert.equal(refused.param, "messages[0].content[1].input_audio.data");
  });

  it("rejects unsupported requests with a specific error", async () => {
    const speech = (body: object) =>
      refusal("/v1/audio/speech", { model: "voice", input: "Hi", response_format: "wav", ...body });
    assert.match(
      (await speech({ input: "x".repeat(201) })).message,
      /at most 200 characters \(max_input_chars\), got 201/,
    );
    assert.match((await speech({ input: "?!" })).message, /a text with words/);
    assert.match((await speech({ voice: "bob" })).message, /en_US-joe-medium/);
    assert.match((await speech({ model: "whisper" })).message, /does not speak; name one of: "voice", "robot"/);
    assert.match((await speech({ model: "chat" })).message, /does not speak/);
    assert.equal((await speech({ response_format: "ogg" })).param, "response_format");
    assert.match(
      (await refusal("/v1/chat/completions", { model: "voice", messages: "hi" })).message,
      /POST \/v1\/audio\/speech/,
    );
    const audio = await spoken({});
    const failure = async (fields: Readonly<Record<string, string>>, bytes: Uint8Array = audio) =>
      ((await (await transcript(fields, bytes)).json()) as Failure).error;
    assert.match((await failure({ model: "voice" })).message, /does not transcribe; name one of: "whisper"/);
    assert.match((await failure({ temperature: "0.5" })).message, /expected 0/);
    assert.match((await failure({ "timestamp_granularities[]": "word" })).message, /words are not supported/);
    assert.match((await failure({ stream: "true", response_format: "srt" })).message, /response_format json or text/);
    assert.match((await failure({ language: "fr" })).message, /a language that the model transcribes/);
    assert.equal((await failure({}, Buffer.from("no audio"))).code, "unsupported");
  });

  it("reloads a speech model when it crashes, and unloads it on demand", async () => {
    const pid = Number(/model loaded.*model=voice.*enginePid=(\d+)/.exec(server.output())?.[1]);
    process.kill(pid, "SIGKILL");
    let status = 0;
    for (let tries = 0; tries < 100 && status !== 200; tries++) {
      await new Promise((resolve) => setTimeout(resolve, 100));
      status = (await post("/v1/audio/speech", { model: "voice", input: "Hi", response_format: "wav" })).status;
    }
    assert.equal(status, 200);
    const unloaded = (await (await post("/v1/models/unload", { model_id: "voice" })).json()) as { status: string };
    assert.equal(unloaded.status, "unloaded");
    assert.ok((await spoken({})).length > 44);
  });
});
