// Audio extraction: removes the audio parts (`input_audio`) from a request body, and inserts their transcripts instead. Runs on
// text workers.
import { randomUUID } from "node:crypto";
import { ServerError } from "../../../runtime/errors.ts";
import type { TaskOutput } from "../../../runtime/task/task.ts";
import { parseJson } from "../../json.ts";

/** Name of the text worker task. */
export const takeAudioName = "take-audio";

const MAX_PARTS = 16;
const base64 = /^[A-Za-z0-9+/_-]*={0,2}$/;
const dataUrl = /^data:audio\/[^,;]{1,64}(?:;[^,;]{1,256}){0,4};base64,/i;

/**
 * Request body without audio. The transcript of `audio[i]` belongs between `pieces[i]` and `pieces[i + 1]`, inside a JSON
 * string.
 */
export interface BodyWithoutAudio {
  /** Bytes of the original body. */
  readonly whole: Uint8Array;
  /** Field `model` of the body; undefined if it has none. */
  readonly model: string | undefined;
  readonly audio: readonly AudioPart[];
  readonly pieces: readonly Uint8Array[];
}

export interface AudioPart {
  readonly bytes: Uint8Array;
  /** Path of the body field with the audio, for error messages. */
  readonly param: string;
}

interface Part {
  type?: unknown;
  input_audio?: { data?: unknown };
}

/** Extracts the audio from a body. Throws invalid_value with the path of an invalid audio part. */
export function takeAudio(body: Uint8Array): TaskOutput {
  const value = parseJson(body) as {
    readonly messages?: unknown;
    readonly input?: unknown;
    readonly model?: unknown;
  };
  const mark = randomUUID();
  const audio: AudioPart[] = [];
  for (const [field, textType] of [
    ["messages", "text"],
    ["input", "input_text"],
  ] as const) {
    for (const [i, message] of listOf(value?.[field]).entries()) {
      const content = listOf((message as { readonly content?: unknown } | null)?.content);
      for (const [k, part] of content.entries()) {
        const given = part as Part | null;
        if (given?.type !== "input_audio") continue;
        const param = `${field}[${i}].content[${k}].input_audio.data`;
        if (audio.length === MAX_PARTS)
          throw new ServerError("invalid_value", `expected at most ${MAX_PARTS} audio parts`, { param });
        audio.push({ bytes: decoded(given.input_audio?.data, param), param });
        content[k] = { type: textType, text: mark };
      }
    }
  }
  const pieces = JSON.stringify(value)
    .split(mark)
    .map((piece) => new TextEncoder().encode(piece));
  const model = typeof value?.model === "string" ? value.model : undefined;
  return { value: { whole: body, model, audio, pieces } satisfies BodyWithoutAudio, transfer: [] };
}

/** Returns the body with transcripts instead of the audio. */
export function bodyWith({ pieces }: BodyWithoutAudio, transcripts: readonly string[]): Uint8Array {
  const escaped = transcripts.map((text) => Buffer.from(JSON.stringify(text).slice(1, -1)));
  return new Uint8Array(Buffer.concat(pieces.flatMap((piece, i) => [piece, escaped[i] ?? new Uint8Array(0)])));
}

function listOf(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

function decoded(data: unknown, param: string): Uint8Array {
  const text = typeof data === "string" ? data : "";
  const body = text.slice(dataUrl.exec(text)?.[0].length ?? 0);
  if (body !== "" && base64.test(body)) return new Uint8Array(Buffer.from(body, "base64"));
  throw new ServerError("invalid_value", "expected an audio file in base64; got other text or none", { param });
}
