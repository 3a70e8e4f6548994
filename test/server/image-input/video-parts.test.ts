// Videos in chats, end to end: the real command with a generated model and a generated projector file. ffmpeg decodes the
// videos.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { writeTinyProjector } from "../../fixtures/image-input/tiny-projector.ts";
import { greyAnimation, greyVideo } from "../../fixtures/image-input/videos.ts";
import { ask as askServer, encoderCache, post } from "../../fixtures/media-chat.ts";
import { writeTinyArchitecture } from "../../fixtures/models/tiny-architectures.ts";
import { type RunningServer, runCommand, startServer } from "../../fixtures/serve.ts";

const folder = mkdtempSync(join(tmpdir(), "troupe-videos-"));
const model = join(folder, "model.gguf");
const mmproj = join(folder, "mmproj.gguf");
const flags = ["-m", model, "--mmproj", mmproj, "--engine", "wasm", "--threads", "2", "--max-num-frames", "4"];
const maxFrames = 4;
/** Number of tokens per frame: its embeddings, plus one token before and one after them. */
const frameTokens = 18;
const video = greyVideo(11);

let server: RunningServer;

before(async () => {
  await writeTinyArchitecture(model, "gemma3", { seed: 5, lastTokens: ["<start_of_image>", "<end_of_image>"] });
  await writeTinyProjector(mmproj, { projector: "gemma3", seed: 7, length: 128 });
  server = await startServer(flags);
});
after(async () => {
  await server.stop();
  rmSync(folder, { recursive: true, force: true });
});

const ask = (...parts: readonly object[]) => askServer(server, parts);

const text = { type: "text", text: "What happens?" };
const part = (bytes: Buffer, type = "video/mp4") => ({
  type: "video_url",
  video_url: { url: `data:${type};base64,${bytes.toString("base64")}` },
});

describe("videos", () => {
  it("are shown as frames, counted in the usage, and encoded once", async () => {
    const alone = await ask(text);
    const first = await ask(text, part(video));
    assert.equal(first.status, 200, JSON.stringify(first.body));
    assert.equal(first.body.usage.prompt_tokens, alone.body.usage.prompt_tokens + maxFrames * frameTokens);
    assert.equal(await encoderCache(server, "misses"), maxFrames);
    const again = await ask(text, part(video));
    assert.equal(again.body.choices[0]?.message.content, first.body.choices[0]?.message.content);
    assert.equal(await encoderCache(server, "misses"), maxFrames);
    const reversed = await ask(text, part(await greyAnimation(3, "gif"), "image/gif"));
    assert.equal(reversed.body.usage.prompt_tokens, alone.body.usage.prompt_tokens + 3 * frameTokens);
  });

  it("may be several, in a long body too, each at its place", async () => {
    const other = greyVideo(2);
    const long = { type: "text", text: "word ".repeat(100) };
    const alone = await ask(text, long);
    const { status, body } = await ask(part(other), part(video), text, long);
    assert.equal(status, 200, JSON.stringify(body));
    assert.equal(body.usage.prompt_tokens, alone.body.usage.prompt_tokens + (2 + maxFrames) * frameTokens);
  });

  it("come from a stored file in a response, and stay in the conversation", async () => {
    const form = new FormData();
    form.set("purpose", "user_data");
    form.set("file", new File([new Uint8Array(video)], "video.mp4"));
    const file = (await (await fetch(`${server.url}/v1/files`, { method: "POST", body: form })).json()) as {
      readonly id: string;
    };
    const input = [
      {
        role: "user",
        content: [
          { type: "input_text", text: "What happens?" },
          { type: "input_video", file_id: file.id },
        ],
      },
    ];
    const first = await post(server, "/v1/responses", { input, max_output_tokens: 4 });
    assert.equal(first.status, 200, JSON.stringify(first.body));
    assert.ok(first.body.usage.input_tokens > maxFrames * frameTokens);
    const next = await post(server, "/v1/responses", {
      previous_response_id: first.body.id,
      input: "And then?",
      max_output_tokens: 4,
    });
    assert.ok(next.body.usage.input_tokens > first.body.usage.input_tokens, JSON.stringify(next.body));
  });

  it("are given on the command line", async () => {
    const path = join(folder, "video.mp4");
    writeFileSync(path, video);
    const asked = ["run", ...flags, "--temperature", "0", "--max-tokens", "8", "-i", "What happens?", "--video", path];
    const { code, stdout, stderr } = await runCommand(asked);
    assert.equal(code, 0, stderr);
    const { body } = await ask(part(video), text);
    assert.equal(stdout.trim(), body.choices[0]?.message.content.trim());
    const missing = await runCommand([...asked.slice(0, -1), join(folder, "nothing.mp4")]);
    assert.equal(missing.code, 2);
    assert.match(missing.stderr, /--video expects a file with a video .*nothing\.mp4: ENOENT/);
  });

  it("are rejected with an error that names the field", async () => {
    const refused = async (url: string, expected: RegExp) => {
      const { status, body } = await ask({ type: "video_url", video_url: { url } });
      assert.ok(status === 400 || status === 422, `${status} ${JSON.stringify(body)}`);
      assert.match(body.error.message, expected);
      assert.equal(body.error.param, "messages[0].content[0].video_url.url");
    };
    await refused("data:image/png;base64,aGVsbG8=", /data URL of a video/);
    await refused("data:video/mp4;base64,aGVsbG8=", /the video cannot be decoded/);
    await refused("file:///etc/passwd", /https:\/\/ or http:\/\//);
    await refused("http://127.0.0.1:9/x.mp4", /the video could not be loaded/);
  });
});
