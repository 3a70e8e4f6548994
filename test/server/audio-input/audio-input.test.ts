// Audio input of models, end to end: the real command with a generated model and a generated audio projector file.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import {
  type TinyAudioModel,
  wavOfTones,
  writeTinyAudioModel,
  writeTinyGemma4,
} from "../../fixtures/audio-input/tiny-audio-model.ts";
import { picturePng } from "../../fixtures/image-input/tiny-vision.ts";
import { ask as askServer, encoderCache, post } from "../../fixtures/media-chat.ts";
import { type RunningServer, runCommand, startServer } from "../../fixtures/serve.ts";

const folder = mkdtempSync(join(tmpdir(), "troupe-audio-input-"));
after(() => rmSync(folder, { recursive: true, force: true }));
/** Number of embeddings for an audio window of 30 seconds. `marks`: number of tokens that delimit the audio. */
const windowTokens = 750;
const marks = 2;

const text = { type: "text", text: "What do you hear?" };
const part = (file: Buffer) => ({ type: "input_audio", input_audio: { data: file.toString("base64"), format: "wav" } });

for (const engine of ["wasm", "llama"]) {
  describe(`audio input on ${engine}`, () => {
    let files: TinyAudioModel;
    let server: RunningServer;
    let flags: readonly string[];
    const spoken = wavOfTones(3);

    before(async () => {
      files = await writeTinyAudioModel(folder, "qwen2a");
      flags = ["-m", files.model, "--mmproj", files.mmproj, "--engine", engine, "--threads", "2"];
      server = await startServer([...flags, "--max-num-audio", "2"]);
    });
    after(async () => void (await server.stop()));

    const ask = (...parts: readonly object[]) => askServer(server, parts);

    it("is encoded once, and counted in the usage", async () => {
      const alone = await ask(text);
      const first = await ask(text, part(spoken));
      assert.equal(first.status, 200, JSON.stringify(first.body));
      assert.equal(first.body.usage.prompt_tokens, alone.body.usage.prompt_tokens + windowTokens + marks);
      const again = await ask(text, {
        type: "audio_url",
        audio_url: { url: `data:audio/wav;base64,${spoken.toString("base64")}` },
      });
      assert.equal(again.body.choices[0]?.message.content, first.body.choices[0]?.message.content);
      assert.equal(await encoderCache(server, "misses"), 1);
      const other = await post(server, "/v1/responses", {
        input: [{ role: "user", content: [{ type: "input_text", text: text.text }, part(spoken)] }],
        max_output_tokens: 4,
      });
      assert.equal(other.status, 200, JSON.stringify(other.body));
      assert.ok(other.body.usage.input_tokens > windowTokens);
    });

    it("is listed as an input of the model", async () => {
      const { data } = (await (await fetch(`${server.url}/v1/models`)).json()) as {
        readonly data: readonly { readonly input_modalities: readonly string[] }[];
      };
      assert.deepEqual(data[0]?.input_modalities, ["text", "audio"]);
    });

    if (engine === "llama") return;

    it("is cut into windows of 30 seconds", async () => {
      const alone = await ask(text);
      const { status, body } = await ask(text, part(wavOfTones(31)));
      assert.equal(status, 200, JSON.stringify(body));
      assert.equal(body.usage.prompt_tokens, alone.body.usage.prompt_tokens + 2 * windowTokens + marks);
    });

    it("is given on the command line", async () => {
      const path = join(folder, "spoken.wav");
      writeFileSync(path, spoken);
      const asked = ["run", ...flags, "--temperature", "0", "--max-tokens", "8", "-i", text.text, "--audio", path];
      const { code, stdout, stderr } = await runCommand(asked);
      assert.equal(code, 0, stderr);
      const { body } = await ask(part(spoken), text);
      assert.equal(stdout.trim(), body.choices[0]?.message.content.trim());
    });

    it("is rejected with an error that names the field", async () => {
      const refused = async (parts: readonly object[], param: string, expected: RegExp) => {
        const { status, body } = await ask(...parts);
        assert.ok(status >= 400 && status < 500, `${status} ${JSON.stringify(body)}`);
        assert.match(body.error.message, expected);
        assert.equal(body.error.param, param);
      };
      const field = "messages[0].content[0].input_audio.data";
      await refused([{ type: "input_audio", input_audio: { data: "???" } }], field, /base64/);
      await refused([part(Buffer.from("no audio at all, only text"))], field, /the audio cannot be used/);
      await refused([part(spoken), part(wavOfTones(1)), part(wavOfTones(2))], field, /max_num_audio/);
      const image = { type: "image_url", image_url: "data:image/png;base64,aGVsbG8=" };
      await refused([image], "messages[0].content[0].image_url", /not images/);
    });
  });
}

for (const engine of ["wasm", "llama"]) {
  describe(`images and audio from one projector file on ${engine}`, () => {
    let server: RunningServer;
    before(async () => {
      const { model, mmproj } = await writeTinyGemma4(folder);
      server = await startServer(["-m", model, "--mmproj", mmproj, "--engine", engine, "--threads", "2"]);
    });
    after(async () => void (await server.stop()));

    it("are both inputs of the model, and counted in the usage", async () => {
      const { data } = (await (await fetch(`${server.url}/v1/models`)).json()) as {
        readonly data: readonly { readonly input_modalities: readonly string[] }[];
      };
      assert.deepEqual(data[0]?.input_modalities, ["text", "image", "audio"]);
      const image = {
        type: "image_url",
        image_url: { url: `data:image/png;base64,${Buffer.from(await picturePng(420, 294)).toString("base64")}` },
      };
      const { body: alone } = await askServer(server, [text]);
      const { status, body } = await askServer(server, [text, image, part(wavOfTones(3))]);
      assert.equal(status, 200, JSON.stringify(body));
      // 10 x 7 embeddings of the picture, 75 of the audio, and two marks for each.
      assert.equal(body.usage.prompt_tokens, alone.usage.prompt_tokens + 70 + 75 + 4);
      assert.equal(await encoderCache(server, "misses"), 2);
      const { body: other } = await askServer(server, [text, image, part(wavOfTones(31))]);
      assert.equal(other.usage.prompt_tokens, alone.usage.prompt_tokens + 70 + 750 + 25 + 4);
    });
  });
}

it("loads only the encoders that requests may use", async () => {
  const { model, mmproj } = await writeTinyGemma4(folder);
  const flags = ["-m", model, "--mmproj", mmproj, "--engine", "wasm", "--max-num-audio", "0"];
  const server = await startServer(flags);
  try {
    const { data } = (await (await fetch(`${server.url}/v1/models`)).json()) as {
      readonly data: readonly { readonly input_modalities: readonly string[] }[];
    };
    assert.deepEqual(data[0]?.input_modalities, ["text", "image"]);
    const { status, body } = await askServer(server, [text, part(wavOfTones(1))]);
    assert.equal(status, 400);
    assert.match(body.error.message, /takes no audio.*max_num_audio above 0/);
  } finally {
    await server.stop();
  }
});

it("refuses an unknown audio projector", async () => {
  const { model, mmproj } = await writeTinyAudioModel(folder, "voxtral");
  const bytes = readFileSync(mmproj);
  bytes.write("unknown", bytes.indexOf("voxtral"), "latin1");
  const other = join(folder, "other.gguf");
  writeFileSync(other, bytes);
  const { code, stderr } = await runCommand(["run", "-m", model, "-i", "x", "--mmproj", other]);
  assert.notEqual(code, 0);
  assert.match(stderr, /audio projector "unknown"; expected ultravox, qwen2a, voxtral, gemma4a, gemma4ua, lfm2a/);
});
