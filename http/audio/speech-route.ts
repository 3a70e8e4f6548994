// POST /v1/audio/speech: synthesises speech. Audio is sent while it is generated, as the bytes of a file or as server-sent
// events.
// GET /v1/audio/voices: the voices of the speech models.

import { openaiNamesOf } from "../../actors/api/speech/openai-voices.ts";
import type { SpeakEvent } from "../../actors/api/speech/speech.ts";
import { ServerError, toErrorRecord } from "../../runtime/errors.ts";
import type { RouteHandler } from "../context.ts";
import { errorBody } from "../errors.ts";
import { type Exchange, eventStreamHeaders } from "../exchange.ts";
import { clientOf } from "../server/client.ts";
import { writePiece } from "../server/write-piece.ts";
import { readRequest } from "../shared/read-request.ts";
import { begunCall, incomplete, speechOf } from "./events.ts";
import type { WireSpeechEvent, WireVoice } from "./operation.ts";
import { speechTranslator } from "./speech-request.ts";

export const createSpeech: RouteHandler = async (exchange, context) => {
  const speech = speechOf(context);
  const { model: named, asked, isEvents } = await readRequest(exchange, context, speechTranslator);
  const model = speech.resolve(named ?? undefined, "speak");
  exchange.model = model;
  const { request } = exchange;
  const call = speech.speak({ ...asked, model, client: clientOf(request) }, request.signal);
  const { first, events } = await begunCall<SpeakEvent>(call);
  if (first.type !== "begin") throw new ServerError("internal", "a speech call did not begin");
  const headers = isEvents ? eventStreamHeaders : { "content-type": first.contentType, "cache-control": "no-store" };
  // The first audio is awaited before the response begins, because synthesis of the first sentence may fail.
  const next = await events.next();
  if (next.done === true) throw incomplete();
  await send(exchange, headers, isEvents, next.value, events, context.config.readerStallMs);
};

async function send(
  exchange: Exchange,
  headers: Readonly<Record<string, string>>,
  isEvents: boolean,
  begun: SpeakEvent,
  rest: AsyncIterable<SpeakEvent>,
  readerStallMs: number,
): Promise<void> {
  const { signal } = exchange.request;
  const sink = exchange.openStream(headers);
  let isDone = false;
  const write = async (event: SpeakEvent): Promise<void> => {
    if (event.type === "done") isDone = true;
    const piece = isEvents ? eventText(event) : event.type === "audio" ? event.bytes : "";
    if (piece.length > 0) await writePiece(sink, piece, readerStallMs);
  };
  try {
    await write(begun);
    for await (const event of rest) {
      if (signal.aborted) return;
      await write(event);
    }
    if (signal.aborted) return;
    if (!isDone) throw incomplete();
    sink.end();
  } catch (thrown) {
    if (signal.aborted) return;
    const error = thrown instanceof ServerError ? toErrorRecord(thrown) : exchange.unexpected(thrown);
    exchange.errorCode = error.code;
    // A body of audio bytes cannot contain an error message. Closing the connection shows the client that the audio is
    // incomplete.
    if (!isEvents) sink.abort();
    else {
      await writePiece(sink, `data: ${errorBody(error)}\n\n`, readerStallMs);
      sink.end();
    }
  }
}

function eventText(event: SpeakEvent): string {
  if (event.type === "audio") {
    const { buffer, byteOffset, byteLength } = event.bytes;
    return text({ type: "speech.audio.delta", audio: Buffer.from(buffer, byteOffset, byteLength).toString("base64") });
  }
  return event.type === "done" ? text({ type: "speech.audio.done", seconds: event.seconds }) : "";
}

function text(event: WireSpeechEvent): string {
  return `data: ${JSON.stringify(event)}\n\n`;
}

export const listVoices: RouteHandler = (exchange, context) => {
  const models = speechOf(context).models();
  const data = models.flatMap(({ id: model, card }): WireVoice[] =>
    (card?.voices ?? []).map(({ id, language }) => ({
      id,
      object: "voice",
      model,
      language,
      openai_voices: openaiNamesOf(id, card?.voices ?? []),
    })),
  );
  exchange.json(200, { object: "list", data });
};
