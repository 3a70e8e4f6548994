// Model media: the request field that an error about an image, video or audio file names, and the limit of embeddings.
import assert from "node:assert/strict";
import { it } from "node:test";
import { type EncodedMedia, ModelMedia } from "../../../engines/media/model-media.ts";
import { ServerError } from "../../../runtime/errors.ts";

const bytes = new Uint8Array(1);

it("a damaged file is named by its own field of the request", async () => {
  const encode = async (file: Uint8Array) => {
    if (file !== bytes) throw new ServerError("invalid_value", "the audio cannot be used");
    return [new Float32Array(4)];
  };
  const audio = { embeddingLength: 4, encoder: { encode } };
  const media = new ModelMedia({ images: null, audio, limits: { cacheBytes: 1024, maxMediaBytesInFlight: 1024 } });
  const one = (key: string, file: Uint8Array): EncodedMedia => {
    return { key, digest: key, bytes: file, isAudio: true, param: `messages[0].content[${key}]` };
  };
  const prepared = media.prepare({}, 1, [one("0", bytes), one("1", new Uint8Array(2))], "client");
  await assert.rejects(prepared, { code: "invalid_value", param: "messages[0].content[1]" });
});

it("a request whose own embeddings are too large is refused for good; one that waits for others may be repeated", async () => {
  const encode = async () => [{ byteLength: 60 * 2 ** 20 } as Float32Array];
  const media = new ModelMedia({
    images: null,
    audio: { embeddingLength: 4, encoder: { encode } },
    limits: { cacheBytes: 0, maxMediaBytesInFlight: 100 * 2 ** 20 },
  });
  const files = (...keys: readonly string[]): EncodedMedia[] =>
    keys.map((key) => ({ key, digest: key, bytes, isAudio: true, param: `messages[0].content[${key}]` }));
  const owner = {};
  await assert.rejects(media.prepare(owner, 1, files("0", "1", "2"), "client"), {
    code: "unsupported",
    param: "messages[0].content[2]",
    message:
      /^the images, videos and audio of the request take more than 100 MiB of embeddings \(max_media_bytes_in_flight\)/,
  });
  await media.prepare(owner, 2, files("0", "1"), "client");
  await assert.rejects(media.prepare(owner, 3, files("3"), "client"), { code: "queue_full" });
  media.release(owner, 2);
  await media.prepare(owner, 3, files("3"), "client");
});
