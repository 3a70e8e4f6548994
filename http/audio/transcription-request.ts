// Form of POST /v1/audio/transcriptions and /v1/audio/translations: writes the file to a staging folder and checks the fields.
import { z } from "zod";
import { ServerError } from "../../runtime/errors.ts";
import { describeIssue } from "../issues.ts";
import type { IgnoredField } from "../shared/ignored.ts";
import type { UnknownFields } from "../shared/unknown-fields.ts";

export const transcriptFormats = ["json", "text", "srt", "vtt", "verbose_json"] as const;
export type TranscriptFormat = (typeof transcriptFormats)[number];

const MAX_NAME_LENGTH = 4096;

const model = z.string().max(MAX_NAME_LENGTH).optional().meta({
  description:
    'Id of a model that transcribes; "default" is the default model if it does, else the first one that does.',
  default: "default",
});
const file = z.string().meta({
  description:
    "Audio file (wav, mp3, flac, ogg, m4a, mp4, aac or webm), at most `max_audio_bytes` and `max_audio_secs`.",
  format: "binary",
});
const response_format = z
  .enum(transcriptFormats)
  .optional()
  .meta({ description: "Form of the transcript; verbose_json has its segments with times.", default: "json" });
const prompt = z.string().optional().meta({ support: "ignored", description: "Ignored: the model takes no prompt." });
const temperature = z
  .string()
  .regex(/^0*(?:\.0*)?$/, { error: "expected 0: the most probable text is written" })
  .optional()
  .meta({ description: "Only 0: the most probable text is written.", default: "0" });
const stream = z.enum(["true", "false"]).optional().meta({
  description: "Send the text as events while it is made; only with response_format json or text.",
  default: "false",
});

export const translationForm = z.strictObject({ file, model, response_format, prompt, temperature, stream });
export const transcriptionForm = translationForm.extend({
  language: z
    .string()
    .regex(/^[a-z]{2,3}$/, { error: "expected an ISO 639-1 code, such as en" })
    .optional()
    .meta({ description: "Language of the audio as an ISO 639-1 code. Default: detected." }),
  "timestamp_granularities[]": z
    .enum(["segment"], { error: "expected segment: times of words are not supported" })
    .optional()
    .meta({ description: "Times in verbose_json: only those of segments.", default: "segment" }),
  chunking_strategy: z
    .string()
    .optional()
    .meta({ support: "ignored", description: "Ignored: audio is cut into windows of 30 seconds." }),
});

export interface AskedTranscript {
  readonly model: string | undefined;
  readonly language: string | null;
  readonly format: TranscriptFormat;
  readonly isStream: boolean;
  readonly ignored: readonly IgnoredField[];
}

/** Checks the fields of a form. Throws a ServerError that names the invalid field. */
export function askedTranscript(
  fields: ReadonlyMap<string, string>,
  translates: boolean,
  unknownFields: UnknownFields,
): AskedTranscript {
  const schema = translates ? translationForm : transcriptionForm;
  const known = Object.keys(schema.shape);
  const unknown = [...fields.keys()].filter((name) => !known.includes(name));
  const [first] = unknown;
  if (first !== undefined && unknownFields === "refuse") throw unknownField(first, known);
  const given = Object.fromEntries([...fields].filter(([name]) => !unknown.includes(name)));
  const { success, data, error } = schema.safeParse({ ...given, file: "" });
  if (!success) throw describeIssue(error.issues);
  const format = data.response_format ?? "json";
  const isStream = data.stream === "true";
  if (isStream && format !== "json" && format !== "text") {
    const message = `expected response_format json or text with stream, got ${format}`;
    throw new ServerError("invalid_value", message, { param: "stream" });
  }
  const ignored = ["prompt", "chunking_strategy"].filter((name) => fields.has(name) && known.includes(name));
  return {
    model: data.model,
    language: "language" in data ? ((data.language as string | undefined) ?? null) : null,
    format,
    isStream,
    ignored: [
      ...ignored.map((path) => ({ path, description: "Ignored: the model does not take it" })),
      ...unknown.map((path) => ({ path, description: null })),
    ],
  };
}

function unknownField(name: string, known: readonly string[]): ServerError {
  const message = `unknown field ${JSON.stringify(name.slice(0, 100))}; known fields: ${known.join(", ")}`;
  return new ServerError("invalid_value", message, { param: name.slice(0, 100) });
}
