// Images in chats, end to end: the real command with a generated model and a generated projector file, on both engines.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import sharp from "sharp";
import { writeTinyProjector } from "../../fixtures/image-input/tiny-projector.ts";
import { ask, encoderCache } from "../../fixtures/media-chat.ts";
import { writeTinyArchitecture } from "../../fixtures/models/tiny-architectures.ts";
import { type RunningServer, runCommand, startServer } from "../../fixtures/serve.ts";

const folder = mkdtempSync(join(tmpdir(), "troupe-images-"));
const model = join(folder, "model.gguf");
const mmproj = join(folder, "mmproj.gguf");
const side = 112;
const tileTokens = 16;

/** Returns a picture of stripes. Different numbers of stripes give different pictures. */
async function picture(stripes: number, width = side, height = side): Promise<Buffer> {
  const pixels = Buffer.alloc(width * height * 3);
  for (let i = 0; i < pixels.length; i++) pixels[i] = 127 + 120 * Math.sin((i * stripes) / 97);
  return await sharp(pixels, { raw: { width, height, channels: 3 } })
    .png()
    .toBuffer();
}

const dataUrl = (image: Buffer) => `data:image/png;base64,${image.toString("base64")}`;

before(async () => {
  const lastTokens = ["<start_of_image>", "<end_of_image>"];
  await writeTinyArchitecture(model, "gemma3", { seed: 5, lastTokens });
  await writeTinyProjector(mmproj, { projector: "gemma3", seed: 7, length: 128 });
});
after(() => rmSync(folder, { recursive: true, force: true }));

for (const engine of ["wasm", "llama"]) {
  describe(`images on ${engine}`, () => {
    let server: RunningServer;
    before(async () => {
      server = await startServer([
        "-m",
        model,
        "--mmproj",
        mmproj,
        "--engine",
        engine,
        "--threads",
        "2",
        "--max-num-images",
        "3",
      ]);
    });
    after(async () => void (await server.stop()));

    it("encodes an image once, counts its tokens, and reuses its prefix", async () => {
      const parts = [
        { type: "text", text: "What is in this picture?" },
        { type: "image_url", image_url: { url: dataUrl(await picture(3)) } },
      ];
      const text = await ask(server, parts.slice(0, 1));
      assert.equal(text.status, 200, JSON.stringify(text.body));
      const first = await ask(server, parts);
      assert.equal(first.status, 200, JSON.stringify(first.body));
      // The image's embeddings, plus one token before and one after them.
      assert.equal(first.body.usage.prompt_tokens, text.body.usage.prompt_tokens + tileTokens + 2);
      const second = await ask(server, parts);
      assert.equal(second.body.choices[0]?.message.content, first.body.choices[0]?.message.content);
      assert.equal(await encoderCache(server, "misses"), 1);
      assert.equal(await encoderCache(server, "hits"), 1);
      if (engine === "wasm") {
        const cached = second.body.usage.prompt_tokens_details?.cached_tokens ?? 0;
        assert.ok(cached > tileTokens, `${cached} tokens cached`);
      }
    });

    it("answers differently about another image", async () => {
      const about = async (stripes: number) => {
        const parts = [
          { type: "image_url", image_url: dataUrl(await picture(stripes)) },
          { type: "text", text: "Name it." },
        ];
        const { status, body } = await ask(server, parts, { logprobs: true, top_logprobs: 5 });
        assert.equal(status, 200, JSON.stringify(body));
        return JSON.stringify(body.choices);
      };
      const answers = [await about(1), await about(2), await about(1)];
      assert.notEqual(answers[0], answers[1]);
      const withoutIds = (text: string | undefined) => text?.slice(0, 200);
      assert.equal(withoutIds(answers[0]), withoutIds(answers[2]));
    });

    it("are given on the command line too", async () => {
      const file = join(folder, "picture.png");
      writeFileSync(file, await picture(3));
      const flags = ["-m", model, "--mmproj", mmproj, "--engine", engine, "--threads", "2", "--temperature", "0"];
      const asked = ["run", ...flags, "--max-tokens", "8", "-i", "Name it.", "--image", file];
      const { code, stdout, stderr } = await runCommand(asked);
      assert.equal(code, 0, stderr);
      const parts = [
        { type: "image_url", image_url: dataUrl(await picture(3)) },
        { type: "text", text: "Name it." },
      ];
      const { body } = await ask(server, parts);
      assert.equal(stdout.trim(), body.choices[0]?.message.content.trim());
      const missing = await runCommand([...asked.slice(0, -1), join(folder, "nothing.png")]);
      assert.equal(missing.code, 2);
      assert.match(missing.stderr, /--image expects a file with an image .*nothing\.png: ENOENT/);
    });

    it("rejects what is not an image, and names the field", async () => {
      const refused = async (url: string, expected: RegExp) => {
        const { status, body } = await ask(server, [{ type: "image_url", image_url: { url } }]);
        assert.ok(status === 400 || status === 422, `${status} ${JSON.stringify(body)}`);
        assert.match(body.error.message, expected);
        assert.match(body.error.param ?? "", /^messages\[0\]\.content\[0\]\.image_url/);
      };
      await refused("data:text/plain;base64,aGVsbG8=", /data URL of an image/);
      await refused(`data:image/png;base64,${Buffer.from("hello").toString("base64")}`, /cannot be decoded/);
      await refused("file:///etc/passwd", /https:\/\/ or http:\/\//);
      await refused("http://127.0.0.1:9/x.png", /could not be loaded/);
      const bomb = await sharp({ create: { width: 10, height: 10, channels: 3, background: "#000" } })
        .png()
        .toBuffer();
      bomb.writeUInt32BE(20_000, 16);
      bomb.writeUInt32BE(20_000, 20);
      await refused(
        dataUrl(bomb),
        /cannot be decoded: it has 20000 x 20000 pixels; expected .* of at most 67108864 pixels/,
      );
      const four = await Promise.all([1, 2, 3, 4].map((n) => picture(n, 20, 20)));
      const many = await ask(
        server,
        four.map((image) => ({ type: "image_url", image_url: { url: dataUrl(image) } })),
      );
      assert.match(many.body.error.message, /max_num_images/);
    });

    it("takes the same image in every protocol, and from a stored file", async () => {
      const image = await picture(3);
      const misses = await encoderCache(server, "misses");
      const post = async (path: string, body: object, type = "application/json") => {
        const response = await fetch(`${server.url}${path}`, {
          method: "POST",
          headers: { "content-type": type },
          body: JSON.stringify(body),
        });
        const parsed = (await response.json()) as {
          usage: { input_tokens: number; cache_read_input_tokens?: number };
        };
        assert.equal(response.status, 200, JSON.stringify(parsed));
        return parsed.usage.input_tokens + (parsed.usage.cache_read_input_tokens ?? 0);
      };
      const form = new FormData();
      form.set("purpose", "user_data");
      form.set("file", new File([new Uint8Array(image)], "picture.png"));
      const file = (await (await fetch(`${server.url}/v1/files`, { method: "POST", body: form })).json()) as {
        id: string;
      };
      const responses = (part: object) =>
        post("/v1/responses", {
          input: [{ role: "user", content: [{ type: "input_text", text: "What is it?" }, part] }],
          max_output_tokens: 4,
        });
      const messages = (source: object) =>
        post("/v1/messages", {
          messages: [
            {
              role: "user",
              content: [
                { type: "text", text: "What is it?" },
                { type: "image", source },
              ],
            },
          ],
          max_tokens: 4,
        });
      const counts = [
        await responses({ type: "input_image", image_url: dataUrl(image) }),
        await responses({ type: "input_image", file_id: file.id }),
        await messages({ type: "base64", media_type: "image/png", data: image.toString("base64") }),
        await messages({ type: "file", file_id: file.id }),
      ];
      assert.ok(
        counts.every((count) => count === counts[0] && count > tileTokens),
        counts.join(", "),
      );
      const counted = (await (
        await fetch(`${server.url}/v1/messages/count_tokens`, {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify({
            messages: [
              {
                role: "user",
                content: [
                  { type: "text", text: "What is it?" },
                  { type: "image", source: { type: "file", file_id: file.id } },
                ],
              },
            ],
          }),
        })
      ).json()) as { input_tokens: number };
      assert.equal(counted.input_tokens, counts[0]);
      assert.equal(await encoderCache(server, "misses"), misses);
    });

    it("continues a response about an image", async () => {
      const respond = async (body: object) => {
        const response = await fetch(`${server.url}/v1/responses`, {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify({ max_output_tokens: 4, ...body }),
        });
        const parsed = (await response.json()) as { id: string; usage: { input_tokens: number } };
        assert.equal(response.status, 200, JSON.stringify(parsed));
        return parsed;
      };
      const image = { type: "input_image", image_url: dataUrl(await picture(3)) };
      const first = await respond({
        input: [{ role: "user", content: [{ type: "input_text", text: "What is it?" }, image] }],
      });
      const next = await respond({ previous_response_id: first.id, input: "And its colour?" });
      assert.ok(next.usage.input_tokens > first.usage.input_tokens, `${next.usage.input_tokens} tokens`);
    });

    it("lists images as an input of the model", async () => {
      const { data } = (await (await fetch(`${server.url}/v1/models`)).json()) as {
        data: { input_modalities: string[] }[];
      };
      assert.deepEqual(data[0]?.input_modalities, ["text", "image"]);
    });
  });
}

it("streams text while an image is encoded", async () => {
  const large = join(folder, "large.gguf");
  const shape = { width: 256, heads: 4, layers: 4, feedForward: 1024, imageSize: 448, mergeSide: 8 };
  await writeTinyProjector(large, { projector: "gemma3", seed: 8, length: 128, ...shape });
  const server = await startServer(["-m", model, "--mmproj", large, "--threads", "2"]);
  try {
    const stream = await fetch(`${server.url}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({
        messages: [{ role: "user", content: "Count." }],
        max_tokens: 400,
        ignore_eos: true,
        stream: true,
      }),
    });
    let chunks = 0;
    let duringImage = 0;
    let isEncoding = false;
    const reading = (async () => {
      for await (const bytes of stream.body ?? []) {
        const count = Buffer.from(bytes).toString().split("data: ").length - 1;
        chunks += count;
        if (isEncoding) duringImage += count;
      }
    })();
    while (chunks === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    isEncoding = true;
    const { status, body } = await ask(server, [{ type: "image_url", image_url: { url: dataUrl(await picture(2)) } }]);
    isEncoding = false;
    assert.equal(status, 200, JSON.stringify(body));
    await reading;
    assert.ok(duringImage >= 5, `${duringImage} chunks came while the image was encoded`);
  } finally {
    await server.stop();
  }
});

it("refuses images for a model without a projector file", async () => {
  const server = await startServer(["-m", model]);
  try {
    const { status, body } = await ask(server, [{ type: "image_url", image_url: { url: dataUrl(await picture(1)) } }]);
    assert.ok(status >= 400 && status < 500, `${status}`);
    assert.match(body.error.message, /takes text, not images.*mmproj/);
  } finally {
    await server.stop();
  }
});
