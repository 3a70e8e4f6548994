// Transcribed body: models without an audio projector take no audio, so the audio in their requests is transcribed by a Whisper model of
// the server, and they read the transcript. Without a Whisper model, audio is refused by name.
import { randomUUID } from "node:crypto";
import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type ErrorRecord, fromErrorRecord } from "../../../runtime/errors.ts";
import type { Context } from "../../context.ts";
import type { Exchange } from "../../exchange.ts";
import { clientOf } from "../../server/client.ts";
import { type AudioPart, type BodyWithoutAudio, bodyWith, takeAudioName } from "./extract-audio.ts";

const AUDIO = Buffer.from('"input_audio"');

/** Whether a body may have audio that a model of this server transcribes. */
export function hasAudio(body: Uint8Array, { speech, files }: Pick<Context, "speech" | "files">): boolean {
  if (speech === null || files === null || !speech.models().some(({ task }) => task === "transcribe")) return false;
  const { buffer, byteOffset, byteLength } = body;
  return Buffer.from(buffer, byteOffset, byteLength).includes(AUDIO);
}

/** Returns the body with transcripts in place of its audio, if its model takes no audio. Takes ownership of the bytes. */
export async function transcribedBody(body: Uint8Array, exchange: Exchange, context: Context): Promise<Uint8Array> {
  const { inference, log } = context;
  const { request } = exchange;
  const message = { client: clientOf(request), protocol: takeAudioName, body, parameters: null };
  const parts = (await inference.translate(message, request.signal)) as BodyWithoutAudio;
  if (inference.resolveModel(parts.model).takesAudio) return parts.whole;
  const transcripts: string[] = [];
  for (const audio of parts.audio) transcripts.push(await transcriptOf(audio, exchange, context));
  if (transcripts.length > 0) log.debug({ requestId: exchange.id, parts: transcripts.length }, "audio was transcribed");
  return bodyWith(parts, transcripts);
}

/** Throws the error that names the field of the audio. */
async function transcriptOf(
  { bytes, param }: AudioPart,
  { request }: Exchange,
  { speech, files }: Context,
): Promise<string> {
  if (speech === null || files === null) return "";
  const path = join(files.stagingFolder, `audio-${randomUUID()}`);
  await writeFile(path, bytes, { flag: "wx", mode: 0o600 });
  try {
    const model = speech.resolve(undefined, "transcribe");
    const asked = { model, client: clientOf(request), path, language: null, translates: false };
    let text = "";
    for await (const events of speech.transcribe(asked, request.signal)) {
      for (const event of events) {
        if (event.type === "error") throw fromErrorRecord(withField(event.error, param));
        if (event.type === "segments") text += event.segments.map((segment) => segment.text).join("");
      }
    }
    return `[Audio of the user, transcribed by the model "${model}"]\n${text.trim()}`;
  } finally {
    await rm(path, { force: true });
  }
}

/** Returns the error of a file, which is a field of another request there, with the field of this one. */
function withField(error: ErrorRecord, param: string): ErrorRecord {
  return error.param === "file" ? { ...error, param } : error;
}
