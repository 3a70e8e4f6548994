// Model media: the request field that an error about an image, video or audio file names, the limit of embeddings, and frames of videos.
import assert from "node:assert/strict";
import { it } from "node:test";
import sharp from "sharp";
import type { ImageRules, TilingRules } from "../../../engines/files/projector/image-rules.ts";
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
    return { key, digest: key, bytes: file, isAudio: true, seconds: null, param: `messages[0].content[${key}]` };
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
    keys.map((key) => ({
      key,
      digest: key,
      bytes,
      isAudio: true,
      seconds: null,
      param: `messages[0].content[${key}]`,
    }));
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

it("a file is encoded as an image and as a frame of a video, which has one tile", async () => {
  const tiling: TilingRules = {
    ...{ tileSize: 28, variable: null, gridEdge: 56, slices: null, kernel: "linear", padding: [0, 0, 0] },
    ...{ mean: [0, 0, 0], deviation: [1, 1, 1] },
  };
  const rules: ImageRules = {
    ...{ projector: "idefics3", tileTokens: 4, cellSize: 14, layout: "cells" },
    ...{ nestsSlices: false, hasGridPositions: false, attendsAhead: false },
  };
  const encoder = { encode: async () => new Float32Array(16) };
  const images = { file: { tiling, rules }, encoder, maxEdge: null };
  const media = new ModelMedia({
    images,
    audio: null,
    limits: { cacheBytes: 2 ** 20, maxMediaBytesInFlight: 2 ** 20 },
  });
  const picture = await sharp({ create: { width: 56, height: 28, channels: 3, background: "#f00" } })
    .png()
    .toBuffer();
  const shown = { digest: "picture", bytes: new Uint8Array(picture), isAudio: false, param: "" };
  const files = [
    { ...shown, key: "image", seconds: null },
    { ...shown, key: "frame", seconds: 1 },
    { ...shown, key: "later", seconds: 2 },
  ];
  const [image, frame, later] = await media.prepare({}, 1, files, "client");
  assert.deepEqual(image?.grid, { rows: 1, columns: 2 });
  assert.equal(image?.tiles.length, 3);
  for (const one of [frame, later]) {
    assert.equal(one?.grid, null);
    assert.deepEqual(one?.tiles, [{ rows: 2, columns: 2 }]);
    assert.notEqual(one?.digest, image?.digest);
  }
  assert.deepEqual([frame?.seconds, later?.seconds], [1, 2]);
  assert.deepEqual(media.statistics, { hits: 1, misses: 2 });
});
