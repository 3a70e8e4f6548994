// ffmpeg: the system's programs ffprobe and ffmpeg, which read the frames of a video. Both run with limits of time and
// memory, and may read only one file: no network, no playlists or other formats that name further files.
import { inOneLine, ServerError } from "../../../runtime/errors.ts";
import type { Command } from "../../../runtime/program/limited-command.ts";
import { type CommandLimits, runLimitedCommand } from "../../../runtime/program/limited-program.ts";
import { findProgram } from "../../../runtime/sandbox/host-isolation.ts";

/** Maximum number of pixels of a frame; videos with larger frames are refused before they are decoded. */
const maxFramePixels = 16 * 2 ** 20;
/** Longest edge of a decoded frame in pixels; larger frames are scaled down to it. */
export const maxFrameEdge = 1280;
const maxErrorLength = 300;
const mebibyte = 2 ** 20;
const probeLimits: CommandLimits = {
  timeMs: 20_000,
  cpuSeconds: 20,
  memoryBytes: 256 * mebibyte,
  outputBytes: 4 * mebibyte,
};
/** Limits for one frame. To decode it, the frames since the last keyframe are decoded, too. */
const frameLimits: CommandLimits = {
  timeMs: 30_000,
  cpuSeconds: 30,
  memoryBytes: 1024 * mebibyte,
  outputBytes: 16 * mebibyte,
};
/** Containers of videos, by the names of ffmpeg. None of them reads another file. */
const formats = "mov,matroska,avi,mpegts,mpeg,flv,ogg,asf,mpegvideo,h264,hevc,ivf";
const readsOneFile = ["-v", "error", "-protocol_whitelist", "file", "-format_whitelist", formats];

export interface VideoPrograms {
  readonly ffmpeg: string;
  readonly ffprobe: string;
}

/** Times in seconds of the frames of a video, in the order in which they are shown. */
export interface FrameTimes {
  readonly times: readonly number[];
  /** Time in seconds at which the file starts. */
  readonly start: number;
}

/** Returns the paths of the programs; null if they are not installed. */
export function findVideoPrograms(): VideoPrograms | null {
  const [ffmpeg, ffprobe] = [findProgram("ffmpeg"), findProgram("ffprobe")];
  return ffmpeg === null || ffprobe === null ? null : { ffmpeg, ffprobe };
}

/** Lists the frames of the video in the file at `path`, without decoding them. Throws `invalid_value`. */
export async function frameTimes({ ffprobe }: VideoPrograms, path: string, signal: AbortSignal): Promise<FrameTimes> {
  const entries = "packet=pts_time:stream=width,height:format=start_time";
  const command: Command = [
    ...([ffprobe, ...readsOneFile, "-select_streams", "v:0"] as const),
    ...["-show_entries", entries, "-of", "csv", path],
  ];
  const lines = (await run(command, probeLimits, signal)).toString("latin1").split("\n");
  const fieldsOf = (section: string) =>
    lines.filter((line) => line.startsWith(`${section},`)).map((line) => line.split(",").slice(1).map(Number));
  const [size] = fieldsOf("stream");
  if (size === undefined) throw undecodable("it has no video stream");
  const [width = 0, height = 0] = size;
  if (!(width >= 1 && height >= 1)) throw undecodable("its video stream has no frame size");
  if (width * height > maxFramePixels) {
    throw undecodable(`its frames have ${width} x ${height} pixels; at most ${maxFramePixels} pixels are decoded`);
  }
  const times = fieldsOf("packet").flatMap(([time]) => (Number.isFinite(time) ? [time as number] : []));
  if (times.length === 0) throw undecodable("it has no frames with times");
  const start = fieldsOf("format")[0]?.[0] ?? 0;
  return { times: times.sort((a, b) => a - b), start: Number.isFinite(start) ? start : 0 };
}

/** Returns the time of frame `index` in seconds since the start of the video. */
export function secondsOf({ times, start }: FrameTimes, index: number): number {
  return Math.max(0, (times[index] as number) - start);
}

/** Returns frame `index` as PNG; null if it cannot be decoded. Throws `invalid_value`. */
export async function frameAt(
  { ffmpeg }: VideoPrograms,
  path: string,
  { times, index }: { readonly times: FrameTimes; readonly index: number },
  signal: AbortSignal,
): Promise<Uint8Array | null> {
  // ffmpeg decodes the first frame that is not before this time. The margin is needed because times are rounded to microseconds.
  const seconds = Math.max(0, secondsOf(times, index) - 0.0005);
  // Pixels that are not square are stretched. ffmpeg itself rotates the frame upright.
  const factor = `min(1,${maxFrameEdge}/max(iw*sar,ih))`;
  const scale = `scale=w='max(1,iw*sar*${factor})':h='max(1,ih*${factor})',setsar=1`;
  const command: Command = [
    ...([ffmpeg, "-nostdin", "-threads", "1", "-max_pixels", String(maxFramePixels), ...readsOneFile] as const),
    ...["-ss", seconds.toFixed(6), "-i", path, "-map", "0:v:0", "-frames:v", "1", "-vf", scale],
    ...["-f", "image2pipe", "-c:v", "png", "-pix_fmt", "rgb24", "-compression_level", "1", "pipe:1"],
  ];
  const output = await run(command, frameLimits, signal);
  return output.length === 0 ? null : new Uint8Array(output);
}

async function run(command: Command, limits: CommandLimits, signal: AbortSignal): Promise<Buffer> {
  const { output, failure } = await runLimitedCommand(command, { limits, signal });
  if (signal.aborted) throw new ServerError("cancelled", "the request was cancelled while its video was decoded");
  if (failure === null) return output;
  // ffmpeg's messages contain the path of the temporary file, which is replaced.
  const path = command.find((word) => word.includes("troupe-video-")) ?? "";
  // ffmpeg's messages also contain memory addresses, which are removed.
  const reason = failure.replaceAll(path, "the file").replaceAll(/ @ 0x[0-9a-f]+/g, "");
  throw undecodable(inOneLine(reason).slice(0, maxErrorLength));
}

export function undecodable(reason: string): ServerError {
  const message =
    `the video cannot be decoded: ${reason}; expected an undamaged video (mp4, webm, mkv, avi, mpeg), GIF or WebP: ` +
    "convert it, and send it again";
  return new ServerError("invalid_value", message);
}
