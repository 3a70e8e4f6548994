// Media of `troupe run --image`, `--video` and `--audio`: reads the files and adds them to the user's message.
import { createHash } from "node:crypto";
import { open } from "node:fs/promises";
import type { GenerateRequest, RequestMedia } from "../../../engines/generation.ts";
import { ServerError } from "../../../runtime/errors.ts";

const maxBytes = 64 * 2 ** 20;

type Flag = "image" | "video" | "audio";

/** Reads the files: images, videos, then audio. Throws config_invalid if one cannot be read. */
export async function readMediaFiles(
  files: Readonly<Record<Flag, string | readonly string[] | null>>,
): Promise<readonly RequestMedia[]> {
  const given = (["image", "video", "audio"] as const).flatMap((flag) =>
    [files[flag] ?? []].flat().map((path) => readMedia(path, flag)),
  );
  return await Promise.all(given);
}

/** Returns a chat request whose last message begins with the images, videos and audio. */
export function withMedia(request: GenerateRequest, media: readonly RequestMedia[]): GenerateRequest {
  const { prompt } = request;
  if (media.length === 0 || prompt.kind !== "chat") return request;
  const places = media.map(({ key }) => ({ at: 0, key }));
  const last = prompt.messages.length - 1;
  const messages = prompt.messages.map((message, i) => (i === last ? { ...message, media: places } : message));
  const each = new Map(media.map((item) => [item.key, item]));
  return { ...request, prompt: { ...prompt, messages }, media: [...each.values()] };
}

async function readMedia(path: string, flag: Flag): Promise<RequestMedia> {
  const bytes = await read(path, flag).catch((cause: NodeJS.ErrnoException) => {
    if (cause instanceof ServerError) throw cause;
    throw invalid(path, flag, cause.code ?? cause.message);
  });
  const digest = createHash("sha256").update(bytes).digest("hex");
  const source = { kind: "data", bytes, digest } as const;
  if (flag === "image") return { key: digest, source, param: "--image" };
  return { key: `${flag} ${digest}`, kind: flag, source, param: `--${flag}` };
}

async function read(path: string, flag: Flag): Promise<Uint8Array> {
  const file = await open(path);
  try {
    const { size } = await file.stat();
    if (size > maxBytes) throw invalid(path, flag, `${size} bytes`);
    return new Uint8Array(await file.readFile());
  } finally {
    await file.close();
  }
}

function invalid(path: string, flag: Flag, came: string): ServerError {
  const content = { image: "an image", video: "a video", audio: "audio" }[flag];
  const message = `--${flag} expects a file with ${content} of at most ${maxBytes} bytes; got ${path}: ${came}`;
  return new ServerError("config_invalid", message, { param: flag });
}
