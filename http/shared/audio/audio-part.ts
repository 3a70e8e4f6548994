// Audio part of chat completions and responses: the type `input_audio`.
import { z } from "zod";

export const audioPart = z
  .strictObject({
    type: z.literal("input_audio"),
    input_audio: z.strictObject({
      data: z.string().min(1).meta({ description: "An audio file in base64, or a data URL." }),
      format: z
        .string()
        .max(32)
        .nullish()
        .meta({ support: "ignored", description: "Ignored: the file itself tells its format" }),
    }),
  })
  .meta({
    description:
      "Audio. A model with an audio projector (mmproj) takes it. For another model it is replaced by its transcript, which a Whisper model of the server makes (docs/speech.md), or refused if there is none.",
  });
