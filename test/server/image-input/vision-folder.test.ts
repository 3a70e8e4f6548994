// Images with a vision checkpoint, end to end: the real command serves model folders that include a vision part, without a
// projector file.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import sharp from "sharp";
import { folderImageSize, folderTile, writeVisionFolder } from "../../fixtures/image-input/vision-folder.ts";
import { languageImage, writeLanguageFolder } from "../../fixtures/image-input/vision-language-folder.ts";
import { ask } from "../../fixtures/media-chat.ts";
import { type RunningServer, startServer } from "../../fixtures/serve.ts";

const root = mkdtempSync(join(tmpdir(), "troupe-vision-folder-"));
after(() => rmSync(root, { recursive: true, force: true }));

const folders = [
  {
    name: "llava",
    write: (folder: string) => writeVisionFolder(folder, "LlavaForConditionalGeneration"),
    size: { width: folderImageSize, height: folderImageSize },
    // One embedding per patch of the tile.
    imageTokens: 64,
  },
  {
    name: "qwen2.5-vl",
    write: (folder: string) => writeLanguageFolder(folder, "qwen2.5-vl"),
    size: languageImage,
    // 7 x 5 embeddings, plus one token before and one after them.
    imageTokens: 37,
  },
] as const;

for (const { name, write, size, imageTokens } of folders) {
  describe(`a folder with a vision part, ${name}`, () => {
    let server: RunningServer;
    before(async () => {
      const folder = join(root, name);
      await write(folder);
      const template = "{% for message in messages %}{{ message.content }}{% endfor %}";
      writeFileSync(join(folder, "chat_template.jinja"), template);
      server = await startServer(["-m", folder, "--kind", "multimodal", "--threads", "1", "--engine", "wasm"], {
        XDG_CACHE_HOME: root,
      });
    });
    after(async () => void (await server.stop()));

    it("accepts images with kind multimodal", async () => {
      const { width, height, pixels } = folderTile(size.width, size.height);
      const png = await sharp(pixels, { raw: { width, height, channels: 3 } })
        .png()
        .toBuffer();
      const text = { type: "text", text: "What is this?" };
      const image = { type: "image_url", image_url: { url: `data:image/png;base64,${png.toString("base64")}` } };
      const plain = await ask(server, [text]);
      const shown = await ask(server, [text, image]);
      assert.equal(shown.status, 200, JSON.stringify(shown.body));
      assert.equal(shown.body.usage.prompt_tokens, plain.body.usage.prompt_tokens + imageTokens);
    });
  });
}
