// Transcribed body: if a model has no audio projector, a Whisper model of the server transcribes the audio in its requests, and
// the model reads the transcript. Without a Whisper model, audio is rejected with an error that names the field.
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { stageBytes } from "../../../actors/files/stage-bytes.ts";
import { type ErrorRecord, fromErrorRecord } from "../../../runtime/errors.ts";
import type { Context } from "../../context.ts";
import type { Exchange } from "../../exchange.ts";
import { clientOf } from "../../server/client.ts";
import { type AudioPart, type BodyWithoutAudio, bodyWith, takeAudioName } from "./extract-audio.ts";

const AUDIO = Buffer.from('"input_audio"');

/** Returns whether a body may contain audio that a model of this server can transcribe. */
export function hasAudio(body: Uint8Array, { speech, files }: Pick<Context, "speech" | "files">): boolean {
  if (speech === null || files === null || !speech.models().some(({ task }) => task === "transcribe")) return false;
  const { buffer, byteOffset, byteLength } = body;
  return Buffer.from(buffer, byteOffset, byteLength).includes(AUDIO);
}

/** Returns the body with transcripts instead of its audio, unless the model accepts audio. Takes ownership of the bytes. */
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

/** Returns the transcript of an audio part. Throws an error that names the part's field. */
async function transcriptOf(
  { bytes, param }: AudioPart,
  { request }: Exchange,
  { speech, files }: Context,
): Promise<string> {
  if (speech === null || files === null) return "";
  const path = join(files.stagingFolder, await stageBytes(files.stagingFolder, "audio", bytes));
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

/** Corrects the field name in an error. Errors of the transcription API name the field `file`, which this request does not have. */
function withField(error: ErrorRecord, param: string): ErrorRecord {
  return error.param === "file" ? { ...error, param } : error;
}
