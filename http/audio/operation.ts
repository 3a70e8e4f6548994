// OpenAPI description of the audio routes, and the schemas of their responses and events.
import { z } from "zod";
import { modelErrors, type Operation, streamContent } from "../operation.ts";
import { speechRequestSchema } from "./speech-request.ts";
import { transcriptionForm, translationForm } from "./transcription-request.ts";

const voice = z
  .strictObject({
    id: z.string().meta({ description: "Value of the field `voice`." }),
    object: z.literal("voice"),
    model: z.string().meta({ description: "Id of the model that has the voice." }),
    language: z.string(),
    openai_voices: z.array(z.string()).meta({ description: "Voices of OpenAI that stand for this one." }),
  })
  .meta({ id: "Voice" });

export type WireVoice = z.output<typeof voice>;

const voiceList = z.strictObject({ object: z.literal("list"), data: z.array(voice) }).meta({ id: "VoiceList" });

const speechEvent = z
  .discriminatedUnion("type", [
    z.strictObject({
      type: z.literal("speech.audio.delta"),
      audio: z.string().meta({ description: "Next bytes of the audio file in base64." }),
    }),
    z.strictObject({
      type: z.literal("speech.audio.done"),
      seconds: z.number().meta({ description: "Length of the audio." }),
    }),
  ])
  .meta({ id: "SpeechEvent" });

export type WireSpeechEvent = z.output<typeof speechEvent>;

const usage = z.strictObject({ type: z.literal("duration"), seconds: z.int().min(0) });

const transcript = z
  .strictObject({ text: z.string(), usage: usage.meta({ description: "Length of the audio, rounded up." }) })
  .meta({ id: "Transcript" });

const segment = z.strictObject({
  id: z.int().min(0),
  seek: z.int().min(0).meta({ description: "Start in hundredths of a second." }),
  start: z.number().meta({ description: "Seconds from the start of the audio." }),
  end: z.number(),
  text: z.string(),
  tokens: z.array(z.int()),
  temperature: z.number(),
  avg_logprob: z.number().meta({ description: "Mean log probability of the tokens of the window." }),
  compression_ratio: z.number().meta({ description: "Above 2.4, the text probably repeats itself." }),
  no_speech_prob: z.number().meta({ description: "Probability that the window has no speech." }),
});

const verboseTranscript = z
  .strictObject({
    task: z.enum(["transcribe", "translate"]),
    language: z.string().meta({ description: "English name of the language, in lower case." }),
    duration: z.number().meta({ description: "Length of the audio in seconds." }),
    text: z.string(),
    segments: z.array(segment),
    usage,
  })
  .meta({ id: "VerboseTranscript" });

export type WireVerboseTranscript = z.output<typeof verboseTranscript>;

const transcriptEvent = z
  .discriminatedUnion("type", [
    z.strictObject({ type: z.literal("transcript.text.delta"), delta: z.string() }),
    z.strictObject({ type: z.literal("transcript.text.done"), text: z.string() }),
  ])
  .meta({ id: "TranscriptEvent" });

export type WireTranscriptEvent = z.output<typeof transcriptEvent>;

const transcriptAnswers: Operation["answers"] = {
  200: [
    {
      contentType: "application/json",
      schema: z.union([transcript, verboseTranscript]),
      description: "The transcript, with response_format json or verbose_json",
    },
    { contentType: "text/plain", description: "The text, with response_format text" },
    { contentType: "application/x-subrip", description: "Subtitles, with response_format srt" },
    { contentType: "text/vtt", description: "Subtitles, with response_format vtt" },
    streamContent(transcriptEvent, "With stream: the text of one window of audio after another"),
  ],
};

export const createSpeechOperation: Operation = {
  id: "createSpeech",
  tag: "Audio",
  summary: "Speak a text",
  description:
    "The text is cut into sentences; the audio of the first is sent while the next is made. A failure after the first bytes closes the connection; with events it is an event with the error envelope.",
  body: speechRequestSchema,
  answers: {
    200: [
      { contentType: "audio/*", description: "The audio file, in the format that was asked for" },
      streamContent(speechEvent, "With stream_format sse"),
    ],
  },
  errors: modelErrors,
};

export const listVoicesOperation: Operation = {
  id: "listVoices",
  tag: "Audio",
  summary: "List the voices",
  description: "The voices of the models that speak and have been loaded.",
  answers: { 200: [{ contentType: "application/json", schema: voiceList, description: "The voices" }] },
  errors: ["unsupported"],
};

const cutInWindows = "The audio is transcribed in windows of 30 seconds, with a cut at a pause.";

export const transcribeOperation: Operation = {
  id: "createTranscription",
  tag: "Audio",
  summary: "Transcribe audio",
  description: cutInWindows,
  body: transcriptionForm,
  takesForm: true,
  answers: transcriptAnswers,
  errors: [...modelErrors, "storage_unavailable"],
};

export const translateOperation: Operation = {
  id: "createTranslation",
  tag: "Audio",
  summary: "Translate audio into English",
  description: cutInWindows,
  body: translationForm,
  takesForm: true,
  answers: transcriptAnswers,
  errors: [...modelErrors, "storage_unavailable"],
};
