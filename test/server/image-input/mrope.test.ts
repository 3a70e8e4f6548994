// M-RoPE end to end, on both engines: chats with a model whose image tokens have row and column positions. The prefix
// cache, images of different sizes and video frames do not change the responses.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import sharp from "sharp";
import { writeTinyVision } from "../../fixtures/image-input/tiny-vision.ts";
import { greyAnimation } from "../../fixtures/image-input/videos.ts";
import { post } from "../../fixtures/media-chat.ts";
import { type RunningServer, startServer } from "../../fixtures/serve.ts";

const folder = mkdtempSync(join(tmpdir(), "troupe-mrope-"));
after(() => rmSync(folder, { recursive: true, force: true }));

type Message = { readonly role: "user" | "assistant"; readonly content: string | readonly object[] };

interface Answer {
  readonly text: string;
  readonly promptTokens: number;
  readonly cachedTokens: number;
}

async function part(red: number, width: number, height: number): Promise<object> {
  const pixels = Buffer.alloc(width * height * 3);
  for (let i = 0; i < pixels.length; i++) pixels[i] = 127 + 120 * Math.sin((i * red) / 97);
  const png = await sharp(pixels, { raw: { width, height, channels: 3 } })
    .png()
    .toBuffer();
  return { type: "image_url", image_url: { url: `data:image/png;base64,${png.toString("base64")}` } };
}

async function ask(server: RunningServer, messages: readonly Message[]): Promise<Answer> {
  const fields = { messages, max_tokens: 8, temperature: 0, ignore_eos: true };
  const { status, body } = await post(server, "/v1/chat/completions", fields);
  assert.equal(status, 200, JSON.stringify(body));
  return {
    text: body.choices[0]?.message.content ?? "",
    promptTokens: body.usage.prompt_tokens,
    cachedTokens: body.usage.prompt_tokens_details?.cached_tokens ?? 0,
  };
}

const cases = [
  ["wasm", "qwen2.5vl_merger"],
  ["llama", "qwen2.5vl_merger"],
  ["wasm", "qwen3vl_merger"],
  ["llama", "qwen3vl_merger"],
] as const;

for (const [engine, projector] of cases) {
  describe(`images of different sizes on ${engine}, ${projector}`, () => {
    let plain: RunningServer;
    let caching: RunningServer;
    before(async () => {
      const { model, mmproj } = await writeTinyVision(folder, projector);
      const flags = ["-m", model, "--mmproj", mmproj, "--engine", engine, "--threads", "1", "--max-num-images", "2"];
      [plain, caching] = await Promise.all([startServer([...flags, "--prefix-cache-n", "0"]), startServer(flags)]);
    });
    after(async () => {
      await Promise.all([plain.stop(), caching.stop()]);
    });

    it("get the same responses as from a server without a cache, also to the next question", async () => {
      const content = [
        { type: "text", text: "Compare" },
        await part(3, 140, 56),
        { type: "text", text: "with" },
        await part(4, 84, 168),
      ];
      const messages = [{ role: "user", content }] as const;
      const expected = await ask(plain, messages);
      // 5 x 2 and 3 x 6 embeddings; each image also has one token before and one after it.
      assert.ok(expected.promptTokens > 10 + 18 + 4, `${expected.promptTokens} tokens`);
      assert.equal((await ask(caching, messages)).text, expected.text);
      const next = [
        ...messages,
        { role: "assistant", content: expected.text },
        { role: "user", content: "And now?" },
      ] as const;
      const second = await ask(caching, next);
      assert.equal(second.text, (await ask(plain, next)).text);
      assert.ok(second.cachedTokens > 10 + 18, `${second.cachedTokens} tokens cached`);
    });

    it("process each frame of a video at the size of the video", async () => {
      const frames = 3;
      const animation = await greyAnimation(frames, "gif");
      const video = {
        type: "video_url",
        video_url: { url: `data:image/gif;base64,${animation.toString("base64")}` },
      };
      const text = { type: "text", text: "What happens?" };
      const alone = await ask(plain, [{ role: "user", content: [text] }]);
      const shown = [{ role: "user", content: [text, video] }] as const;
      const expected = await ask(plain, shown);
      // A frame of 64 x 64 pixels is enlarged to 3 x 3 embeddings, plus one token before and one after them. Qwen3-VL's frames
      // follow a text with their time.
      const times = projector === "qwen3vl_merger" ? ["0.0", "0.1", "0.2"] : [];
      const counts = await Promise.all(
        times.map(async (time) => {
          const body = { prompt: `<${time} seconds>`, add_special_tokens: false };
          return (await post(plain, "/tokenize", body)).body as unknown as { readonly count: number };
        }),
      );
      const timeTokens = counts.reduce((sum, { count }) => sum + count, 0);
      assert.equal(expected.promptTokens, alone.promptTokens + frames * (9 + 2) + timeTokens);
      const next = [
        ...shown,
        { role: "assistant", content: expected.text },
        { role: "user", content: "Why?" },
      ] as const;
      assert.equal((await ask(caching, shown)).text, expected.text);
      assert.equal((await ask(caching, next)).text, (await ask(plain, next)).text);
    });
  });
}
