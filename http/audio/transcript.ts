// Transcripts as text, subtitles (SRT, WebVTT) and JSON.
import { deflateSync } from "node:zlib";
import type { TranscriptSegment } from "../../engines/speech/speech.ts";
import type { WireVerboseTranscript } from "./operation.ts";
import type { TranscriptFormat } from "./transcription-request.ts";

export interface Transcript {
  readonly language: string;
  readonly seconds: number;
  readonly translates: boolean;
  readonly segments: readonly TranscriptSegment[];
}

const types: Readonly<Record<TranscriptFormat, string>> = {
  json: "application/json",
  verbose_json: "application/json",
  text: "text/plain; charset=utf-8",
  srt: "application/x-subrip; charset=utf-8",
  vtt: "text/vtt; charset=utf-8",
};

/** Returns the body of a transcript in a format, and its content type. */
export function transcriptBody(transcript: Transcript, format: TranscriptFormat): { type: string; body: string } {
  return { type: types[format], body: bodyOf(transcript, format) };
}

function bodyOf(transcript: Transcript, format: TranscriptFormat): string {
  switch (format) {
    case "json":
      return JSON.stringify({ text: textOf(transcript.segments), usage: usageOf(transcript) });
    case "verbose_json":
      return JSON.stringify(verbose(transcript));
    case "text":
      return `${textOf(transcript.segments)}\n`;
    case "srt":
      return transcript.segments
        .map(({ start, end, text }, i) => `${i + 1}\n${time(start, ",")} --> ${time(end, ",")}\n${cue(text)}\n`)
        .join("\n");
    case "vtt":
      return `WEBVTT\n\n${transcript.segments
        .map(({ start, end, text }) => `${time(start, ".")} --> ${time(end, ".")}\n${cue(text)}\n`)
        .join("\n")}`;
  }
}

export function textOf(segments: readonly TranscriptSegment[]): string {
  return segments
    .map(({ text }) => text)
    .join("")
    .trim();
}

function usageOf({ seconds }: Transcript) {
  return { type: "duration" as const, seconds: Math.ceil(seconds) };
}

function verbose(transcript: Transcript): WireVerboseTranscript {
  const { language, seconds, translates, segments } = transcript;
  return {
    task: translates ? "translate" : "transcribe",
    language: nameOf(language),
    duration: rounded(seconds),
    text: textOf(segments),
    segments: segments.map(({ start, end, text, tokens, averageLogprob, noSpeech }, id) => ({
      id,
      seek: Math.round(start * 100),
      start: rounded(start),
      end: rounded(end),
      text,
      tokens: [...tokens],
      temperature: 0,
      avg_logprob: averageLogprob,
      compression_ratio: Buffer.byteLength(text) / deflateSync(text).length,
      no_speech_prob: noSpeech,
    })),
    usage: usageOf(transcript),
  };
}

/** Returns the English name of a language in lower case. */
function nameOf(language: string): string {
  return (new Intl.DisplayNames(["en"], { type: "language" }).of(language) ?? language).toLowerCase();
}

function rounded(seconds: number): number {
  return Math.round(seconds * 1000) / 1000;
}

/** Returns the text of a subtitle cue. Arrows (`-->`) are replaced, because an arrow would end the cue. */
function cue(text: string): string {
  return text
    .trim()
    .replaceAll("-->", "->")
    .replaceAll(/\s*\n\s*/g, "\n");
}

function time(seconds: number, point: string): string {
  const total = Math.round(seconds * 1000);
  const two = (value: number): string => String(Math.floor(value)).padStart(2, "0");
  const ms = String(total % 1000).padStart(3, "0");
  return `${two(total / 3_600_000)}:${two((total / 60_000) % 60)}:${two((total / 1000) % 60)}${point}${ms}`;
}
