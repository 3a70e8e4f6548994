// POST /v1/audio/transcriptions and POST /v1/audio/translations: transcribe an audio file, and send the text as one body, or as
// events during transcription.
import { join } from "node:path";
import type { TranscribeEvent } from "../../actors/api/speech/speech.ts";
import type { TranscriptSegment } from "../../engines/speech/speech.ts";
import { ServerError, toErrorRecord } from "../../runtime/errors.ts";
import type { Context, RouteHandler } from "../context.ts";
import { errorBody } from "../errors.ts";
import type { Exchange } from "../exchange.ts";
import { clientOf } from "../server/client.ts";
import { writePiece } from "../server/write-piece.ts";
import { readForm, removeStaged } from "../shared/forms/read-form.ts";
import { reportIgnored } from "../shared/read-request.ts";
import { withoutOtherLineEnds } from "../sse.ts";
import { begunCall, incomplete, speechOf } from "./events.ts";
import type { WireTranscriptEvent } from "./operation.ts";
import { transcriptBody } from "./transcript.ts";
import { askedTranscript } from "./transcription-request.ts";

export const transcribeAudio: RouteHandler = (exchange, context) => transcript(exchange, context, false);
export const translateAudio: RouteHandler = (exchange, context) => transcript(exchange, context, true);

async function transcript(exchange: Exchange, context: Context, translates: boolean): Promise<void> {
  const speech = speechOf(context);
  const { files, config, log } = context;
  if (files === null) throw new ServerError("unsupported", "this server takes no files");
  const { request } = exchange;
  const rules = {
    fileFields: ["file"],
    maxFiles: 1,
    maxFileBytes: speech.limits.maxAudioBytes,
    allowsFolders: false,
  } as const;
  const form = await readForm(request, files.stagingFolder, rules);
  try {
    const [file] = form.files;
    if (file === undefined) {
      throw new ServerError("invalid_value", "expected an audio file in the field `file`, got none", { param: "file" });
    }
    const {
      model: named,
      language,
      format,
      isStream,
      ignored,
    } = askedTranscript(form.fields, translates, config.unknownFields);
    reportIgnored(exchange, ignored, log);
    const model = speech.resolve(named, "transcribe");
    exchange.model = model;
    const path = join(files.stagingFolder, file.staged);
    const asked = { model, client: clientOf(request), path, language, translates };
    const { first, events } = await begunCall<TranscribeEvent>(speech.transcribe(asked, request.signal));
    if (first.type !== "begin") throw new ServerError("internal", "a speech call did not begin");
    if (isStream) {
      await stream(exchange, events, config.readerStallMs);
      return;
    }
    const segments: TranscriptSegment[] = [];
    let isDone = false;
    for await (const event of events) {
      if (event.type === "segments") segments.push(...event.segments);
      else if (event.type === "done") isDone = true;
    }
    if (request.signal.aborted) return;
    if (!isDone) throw incomplete();
    const { type, body } = transcriptBody({ ...first, translates, segments }, format);
    exchange.send(200, { "content-type": type }, body);
  } finally {
    await removeStaged(form.files, files.stagingFolder);
  }
}

async function stream(
  exchange: Exchange,
  events: AsyncIterable<TranscribeEvent>,
  readerStallMs: number,
): Promise<void> {
  const { signal } = exchange.request;
  const sink = exchange.openEventStream();
  const write = (event: WireTranscriptEvent): Promise<void> =>
    writePiece(sink, withoutOtherLineEnds(`data: ${JSON.stringify(event)}\n\n`), readerStallMs);
  let whole = "";
  let isDone = false;
  try {
    for await (const event of events) {
      if (signal.aborted) return;
      if (event.type === "done") isDone = true;
      if (event.type !== "segments") continue;
      for (const segment of event.segments) {
        const delta = whole === "" ? segment.text.trimStart() : segment.text;
        whole += delta;
        await write({ type: "transcript.text.delta", delta });
      }
    }
    if (signal.aborted) return;
    if (!isDone) throw incomplete();
    await write({ type: "transcript.text.done", text: whole.trim() });
  } catch (thrown) {
    if (signal.aborted) return;
    const error = thrown instanceof ServerError ? toErrorRecord(thrown) : exchange.unexpected(thrown);
    exchange.errorCode = error.code;
    await writePiece(sink, `data: ${errorBody(error)}\n\n`, readerStallMs);
  }
  sink.end();
}
