// Parser of inference request bodies. A short body is parsed on this thread. A long body is parsed on a text worker, because it
// would block this thread.
import type { Context } from "../context.ts";
import type { Exchange } from "../exchange.ts";
import { checkContentType, MAX_BODY_READ_HERE, nameModel, readJsonValue } from "../json.ts";
import type { Log } from "../observe/log.ts";
import { clientOf } from "../server/client.ts";
import { hasAudio, transcribedBody } from "./audio/transcribed-body.ts";
import { type IgnoredField, tellIgnored, unknownFieldList } from "./ignored.ts";
import type { BodyTranslator, Translation, TranslationInput } from "./translation.ts";

/**
 * Returns the translated body. If a model of the server can transcribe audio, audio in the body is transcribed first. Throws an
 * error if the body is invalid.
 */
export async function readRequest<T extends Translation>(
  exchange: Exchange,
  context: Context,
  translator: BodyTranslator<T>,
  parameters: unknown = null,
): Promise<T> {
  const { inference, log, config } = context;
  const { unknownFields } = config;
  const { request } = exchange;
  const takesUntyped = exchange.route?.takesUntyped;
  const { body } = request;
  const mayHaveAudio = hasAudio(body, context);
  if (body.byteLength <= MAX_BODY_READ_HERE && !mayHaveAudio) {
    const translated = translator.translate(readJsonValue(request, { takesUntyped }), parameters, unknownFields);
    reportIgnored(exchange, translated.ignored, log);
    return translated;
  }
  checkContentType(request, takesUntyped);
  const input: TranslationInput = { parameters, unknownFields };
  // The bytes stay counted in the memory budget of bodies until the response ends, because the translation needs as much memory
  // as the body. They also count while the text worker uses the body, even if the request ends earlier.
  request.releaseBody(body.byteLength);
  const letGo = request.holdBody();
  const own = ownMemory(body);
  const translate = async (): Promise<unknown> => {
    const read = mayHaveAudio ? await transcribedBody(own, exchange, context) : own;
    const message = { client: clientOf(request), protocol: translator.name, body: read, parameters: input };
    return await inference.translate(message, request.signal);
  };
  const translated = (await translate().finally(letGo)) as T;
  nameModel(request, translated.model);
  reportIgnored(exchange, translated.ignored, log);
  return translated;
}

/** Logs fields without effect, and lists the unknown fields in a response header. */
export function reportIgnored(exchange: Exchange, ignored: readonly IgnoredField[], log: Log): void {
  if (ignored.length === 0) return;
  tellIgnored(ignored, log);
  exchange.unknownFields = unknownFieldList(ignored);
}

/** Returns the bytes in a buffer of their own, which can be transferred to another thread. */
function ownMemory(bytes: Uint8Array): Uint8Array {
  return bytes.byteLength === bytes.buffer.byteLength ? bytes : new Uint8Array(bytes);
}
