// Request of POST /v1/audio/speech: its schema, and its translation to a SpeakRequest.
import { z } from "zod";
import type { SpeakRequest } from "../../actors/api/speech/speech.ts";
import { audioFormats } from "../../engines/speech/audio/encoder.ts";
import { expected } from "../issues.ts";
import { acceptedBody } from "../shared/accepted-body.ts";
import { commonFields, ignored } from "../shared/fields/fields.ts";
import type { BodyTranslator, Translation } from "../shared/translation.ts";

const MAX_VOICE_LENGTH = 256;

const voiceName = z.string().min(1).max(MAX_VOICE_LENGTH);

export const speechRequestSchema = z.strictObject({
  model: commonFields.model.meta({
    description:
      'Id of a model that speaks; "default" is the default model if it speaks, else the first one that does.',
    default: "default",
  }),
  input: z.string().min(1).meta({ description: "Text to speak, at most `max_input_chars` characters." }),
  voice: z
    .union([voiceName, z.strictObject({ id: voiceName })], { error: expected("the name of a voice") })
    .nullish()
    .meta({
      description:
        "A voice of GET /v1/audio/voices. A voice of OpenAI (such as alloy) stands for one of them. Default: the model's first voice.",
    }),
  response_format: z.enum(audioFormats).nullish().meta({
    description:
      "Format of the audio. wav and pcm are built in; the others need optional packages. pcm: 16-bit little-endian samples, whose rate and channels are in the content type.",
    default: "mp3",
  }),
  speed: z.number().min(0.25).max(4).nullish().meta({ description: "Speaking rate.", default: 1 }),
  stream_format: z.enum(["audio", "sse"]).nullish().meta({
    description: "audio: the bytes of the file, as they are made; sse: events with the bytes in base64.",
    default: "audio",
  }),
  instructions: ignored(z.string(), "the voices of this server take no instructions"),
  user: ignored(z.string(), "requests are not attributed to users"),
});

export interface SpeechTranslation extends Translation {
  readonly asked: Omit<SpeakRequest, "model" | "client">;
  readonly isEvents: boolean;
}

export const speechTranslator: BodyTranslator<SpeechTranslation> = {
  name: "speech",
  translate(value, _parameters, unknownFields) {
    const { body, ignored: fields } = acceptedBody(speechRequestSchema, value, unknownFields);
    const { voice = null } = body;
    return {
      model: body.model,
      ignored: fields,
      isEvents: body.stream_format === "sse",
      asked: {
        input: body.input,
        voice: typeof voice === "string" ? voice : (voice?.id ?? null),
        speed: body.speed ?? 1,
        format: body.response_format ?? "mp3",
      },
    };
  },
  pack: (translated) => ({ value: translated, transfer: [] }),
};
