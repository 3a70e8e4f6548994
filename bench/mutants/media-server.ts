// Server that receives the damaged files. Its models are generated: one for images and video, one for audio input, one that
// transcribes.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { writeTinyAudioModel } from "../../test/fixtures/audio-input/tiny-audio-model.ts";
import { writeTinyProjector } from "../../test/fixtures/image-input/tiny-projector.ts";
import { writeTinyArchitecture } from "../../test/fixtures/models/tiny-architectures.ts";
import { type RunningServer, startCommand } from "../../test/fixtures/serve.ts";
import { writeTinyWhisper } from "../../test/fixtures/speech/tiny-whisper.ts";
import { judged, type MediaKind, type Outcome } from "./outcome.ts";

export interface Answer {
  readonly status: number;
  readonly code: string;
  readonly message: string;
}

/** Time after which a request counts as hanging, in ms; longer than all limits of the decoders. */
const hangMs = 400_000;
const textWidth = 128;
const whisperFiles = ["onnx/encoder_model.onnx", "onnx/decoder_model_merged.onnx", "config.json", "tokenizer.json"];

export type Alias = "image" | "audio" | "whisper";

export class MediaServer {
  readonly #server: RunningServer;
  readonly #folder: string;
  readonly #places: number;

  private constructor(server: RunningServer, folder: string) {
    this.#server = server;
    this.#folder = folder;
    this.#places = server.enginePids().length;
  }

  static async start(): Promise<MediaServer> {
    const folder = mkdtempSync(join(tmpdir(), "troupe-media-server-"));
    const image = join(folder, "image.gguf");
    const mmproj = join(folder, "mmproj.gguf");
    await writeTinyArchitecture(image, "gemma3", { seed: 5, lastTokens: ["<start_of_image>", "<end_of_image>"] });
    await writeTinyProjector(mmproj, { projector: "gemma3", seed: 7, length: textWidth });
    const audio = await writeTinyAudioModel(folder, "qwen2a");
    writeTinyWhisper(join(folder, "whisper"));
    const model = (alias: string, path: string, projector?: string) =>
      `[[models]]\nmodel_id = ${JSON.stringify(path)}\nalias = "${alias}"\n` +
      (projector === undefined ? "" : `[models.format]\nmmproj = ${JSON.stringify(projector)}\n`);
    const config = join(folder, "troupe.toml");
    writeFileSync(
      config,
      `command = "serve"\n[server]\nport = 0\nhost = "127.0.0.1"\n[speech]\nmax_audio_bytes = "49MiB"\n` +
        `[troupe]\nengine = "wasm"\nthreads = 1\n${model("image", image, mmproj)}${model("audio", audio.model, audio.mmproj)}` +
        model("whisper", join(folder, "whisper")),
    );
    return new MediaServer(await startCommand(["from-config", "-f", config]), folder);
  }

  /** Paths of the files of each model that the trials may damage. */
  get files(): Readonly<Record<Alias, readonly string[]>> {
    const inFolder = (names: readonly string[]) => names.map((name) => join(this.#folder, name));
    return {
      image: inFolder(["mmproj.gguf"]),
      audio: inFolder(["qwen2a.gguf"]),
      whisper: inFolder(whisperFiles.map((name) => `whisper/${name}`)),
    };
  }

  get pid(): number {
    return this.#server.process.pid ?? 0;
  }

  /** Number of restarts of model processes. */
  get restarts(): number {
    return this.#server.enginePids().length - this.#places;
  }

  get hasEnded(): boolean {
    return this.#server.process.exitCode !== null || this.#server.process.signalCode !== null;
  }

  async stop(): Promise<void> {
    await this.#server.stop();
    rmSync(this.#folder, { recursive: true, force: true });
  }

  /** Sends a mutant (damaged file) and judges the response. Audio is transcribed if `turn` is even, and sent in a chat if it is odd. */
  async verdictOn(kind: MediaKind, bytes: Buffer, turn: number): Promise<Pick<Outcome, "result" | "detail">> {
    try {
      const { status, code, message } = await this.#answerTo(kind, bytes, turn);
      if (status === 200) return { result: "read", detail: "" };
      if (status >= 400 && status < 500) return judged(kind, code, message);
      return { result: "broken", detail: `status ${status}: ${code}: ${message}` };
    } catch (error) {
      return { result: "broken", detail: `no answer: ${error}` };
    }
  }

  #answerTo(kind: MediaKind, bytes: Buffer, turn: number): Promise<Answer> {
    if (kind === "images") return this.sendImages([bytes]);
    if (kind === "video") return this.watch(bytes);
    return turn % 2 === 0 ? this.transcribe(bytes) : this.sendAudio(bytes);
  }

  sendImages(images: readonly Buffer[]): Promise<Answer> {
    return this.#chat(
      "image",
      images.map((image) => ({ type: "image_url", image_url: { url: dataUrl("image/png", image) } })),
    );
  }

  watch(video: Buffer): Promise<Answer> {
    return this.#chat("image", [{ type: "video_url", video_url: { url: dataUrl("video/mp4", video) } }]);
  }

  sendAudio(audio: Buffer): Promise<Answer> {
    return this.#chat("audio", [
      { type: "input_audio", input_audio: { data: audio.toString("base64"), format: "wav" } },
    ]);
  }

  transcribe(audio: Buffer): Promise<Answer> {
    const form = new FormData();
    form.set("model", "whisper");
    form.set("file", new Blob([new Uint8Array(audio)]), "audio");
    return this.#post("/v1/audio/transcriptions", { body: form });
  }

  /** Makes the server reload a model from its files. */
  reload(alias: Alias): Promise<Answer> {
    const headers = { "content-type": "application/json" };
    return this.#post("/v1/models/reload", { headers, body: JSON.stringify({ model_id: alias }) });
  }

  #chat(model: string, content: readonly object[]): Promise<Answer> {
    const text = { type: "text", text: "What is it?" };
    const body = { model, messages: [{ role: "user", content: [text, ...content] }], max_tokens: 1 };
    return this.#post("/v1/chat/completions", {
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
  }

  async #post(path: string, init: RequestInit): Promise<Answer> {
    const signal = AbortSignal.timeout(hangMs);
    const response = await fetch(`${this.#server.url}${path}`, { ...init, method: "POST", signal });
    const text = await response.text();
    if (response.ok) return { status: response.status, code: "", message: "" };
    const { error } = JSON.parse(text) as {
      readonly error: string | { readonly code: string; readonly message: string };
    };
    const named = typeof error === "string" ? { code: "", message: error } : error;
    return { status: response.status, code: named.code, message: named.message };
  }
}

function dataUrl(type: string, bytes: Buffer): string {
  return `data:${type};base64,${bytes.toString("base64")}`;
}
