// Video frames: which frames of a video are used, how many, and which videos are rejected.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { describe, it } from "node:test";
import sharp from "sharp";
import { VideoFrames } from "../../../engines/image-input/video/video-frames.ts";
import { brightness, greyAnimation, greyVideo } from "../../fixtures/image-input/videos.ts";

const { signal } = new AbortController();
const videos = new VideoFrames();

async function decode(bytes: Uint8Array, maxFrames: number, from = videos): Promise<number[]> {
  const digest = createHash("sha256").update(bytes).digest("hex");
  const frames = await from.decode({ bytes, digest, client: "test" }, maxFrames, signal);
  return await Promise.all(frames.map(async (frame) => (await sharp(frame.bytes).stats()).channels[0]?.mean as number));
}

function assertShown(found: readonly number[], frames: readonly number[], total: number): void {
  assert.equal(found.length, frames.length);
  for (const [i, frame] of frames.entries()) {
    const expected = brightness(frame, total);
    assert.ok(Math.abs((found[i] as number) - expected) <= 4, `frame ${frame}: ${found[i]}; expected ${expected}`);
  }
}

describe("frames of a video", () => {
  it("are evenly spaced, the first and the last among them", async () => {
    assertShown(await decode(greyVideo(25), 5), [0, 6, 12, 18, 24], 25);
  });

  it("are all frames of a short video", async () => {
    assertShown(await decode(greyVideo(3), 16), [0, 1, 2], 3);
    assertShown(await decode(greyVideo(1), 16), [0], 1);
  });

  for (const name of ["video.webm", "video.ts"]) {
    it(`are read from ${name}, also between keyframes and with a start that is not 0`, async () => {
      const flags = name.endsWith("webm") ? ["-c:v", "libvpx", "-g", "100"] : ["-g", "100", "-output_ts_offset", "3"];
      assertShown(await decode(greyVideo(20, name, flags), 3), [0, 10, 19], 20);
    });
  }

  for (const format of ["gif", "webp"] as const) {
    it(`are read from an animated ${format}, without ffmpeg`, async () => {
      const animation = await greyAnimation(9, format);
      assertShown(await decode(animation, 3, new VideoFrames(null)), [0, 4, 8], 9);
    });
  }

  it("are decoded once", async () => {
    const bytes = greyVideo(10);
    const video = { bytes, digest: "of this video", client: "test" };
    assert.equal(await videos.decode(video, 4, signal), await videos.decode(video, 4, signal));
  });

  it("are scaled down if they are large", async () => {
    const large = greyVideo(2, "large.mp4", ["-vf", "scale=2000:500"]);
    const [frame] = await videos.decode({ bytes: large, digest: "large", client: "test" }, 1, signal);
    const { width, height } = await sharp(frame?.bytes).metadata();
    assert.deepEqual([width, height], [1280, 320]);
  });
});

describe("the times of frames", () => {
  const timesOf = async (bytes: Uint8Array, from = videos) => {
    const digest = createHash("sha256").update(bytes).digest("hex");
    const frames = await from.decode({ bytes, digest: `times ${digest}`, client: "test" }, 3, signal);
    return frames.map(({ seconds }) => seconds.toFixed(1));
  };

  it("are seconds since the start of the video", async () => {
    assert.deepEqual(await timesOf(greyVideo(21)), ["0.0", "2.0", "4.0"]);
    assert.deepEqual(await timesOf(greyVideo(21, "late.ts", ["-output_ts_offset", "3"])), ["0.0", "2.0", "4.0"]);
  });

  it("of an animation without delays are those of browsers", async () => {
    const gif = await greyAnimation(21, "gif", Array(21).fill(0));
    assert.deepEqual(await timesOf(gif, new VideoFrames(null)), ["0.0", "1.0", "2.0"]);
  });

  it("of an animation follow from the delays of its pages", async () => {
    const delays = [500, 1500, 1000, 1000, 1000];
    for (const format of ["gif", "webp"] as const) {
      assert.deepEqual(await timesOf(await greyAnimation(5, format, delays), new VideoFrames(null)), [
        "0.0",
        "2.0",
        "4.0",
      ]);
    }
  });
});

describe("a video is rejected", () => {
  const refused = async (bytes: Uint8Array, message: RegExp) =>
    await assert.rejects(decode(bytes, 4), { code: "invalid_value", message });

  it("if it is not a video, or has no video stream", async () => {
    await refused(Buffer.from("no video at all"), /the video cannot be decoded/);
    await refused(new Uint8Array(0), /the video cannot be decoded/);
    await refused(greyVideo(10).subarray(0, 300), /the video cannot be decoded/);
    await refused(Buffer.from("GIF89a, but not really"), /the video cannot be decoded/);
  });

  it("if it names other files", async () => {
    await refused(Buffer.from("#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n"), /cannot be decoded/);
    await refused(Buffer.from("ffconcat version 1.0\nfile /etc/passwd\n"), /cannot be decoded/);
  });

  it("if its frames are too large, before they are decoded", async () => {
    await refused(
      greyVideo(1, "huge.mkv", ["-c:v", "mjpeg", "-vf", "scale=5000:5000"]),
      /5000 x 5000 pixels; at most \d+ pixels are decoded; expected/,
    );
  });

  it("with an error that names ffmpeg if ffmpeg is missing", async () => {
    const error = { code: "unsupported", message: /programs ffmpeg and ffprobe.*apt-get install ffmpeg/ };
    await assert.rejects(decode(greyVideo(2), 2, new VideoFrames(null)), error);
  });

  it("in bounded time, whatever is damaged", async () => {
    const good = greyVideo(10);
    const next = (seed: number) => Math.abs(Math.sin(seed) * 1e6) % 1;
    for (let seed = 1; seed <= 4; seed++) {
      const bad = Buffer.from(good);
      for (let k = 0; k < 20; k++)
        bad[Math.floor(next(seed * 100 + k) * bad.length)] = Math.floor(next(seed * 200 + k) * 256);
      await decode(bad, 2).catch((error: { readonly code?: string }) => assert.equal(error.code, "invalid_value"));
    }
  });
});
