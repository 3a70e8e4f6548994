// Reads the body of a request for inference: a short one here, a long one on a text worker, so that no body blocks this thread.

import type { Context } from "../context.ts";
import type { Exchange } from "../exchange.ts";
import { checkContentType, MAX_BODY_READ_HERE, nameModel, readJsonValue } from "../json.ts";
import { clientOf } from "../server/client.ts";
import { tellIgnored } from "./ignored.ts";
import type { BodyTranslator, Translation } from "./translation.ts";

/** What the body says. Throws what refuses it. */
export async function readRequest<T extends Translation>(
  exchange: Exchange,
  { inference, log }: Context,
  translator: BodyTranslator<T>,
  parameters: unknown = null,
): Promise<T> {
  const { request } = exchange;
  const { body } = request;
  if (body.byteLength <= MAX_BODY_READ_HERE) {
    const translated = translator.translate(readJsonValue(request), parameters);
    tellIgnored(translated.ignored, log);
    return translated;
  }
  checkContentType(request);
  const message = { client: clientOf(request), protocol: translator.name, body: ownMemory(body), parameters };
  // The budget counts the bytes on: the text worker holds them, and later the translation does, until the request releases it.
  request.releaseBody(body.byteLength);
  const letGo = request.holdBody();
  const translated = (await inference.translate(message, request.signal).finally(letGo)) as T;
  nameModel(request, translated.model);
  tellIgnored(translated.ignored, log);
  return translated;
}

/** The bytes in a buffer of their own, which can move to another thread. */
function ownMemory(bytes: Uint8Array): Uint8Array {
  return bytes.byteLength === bytes.buffer.byteLength ? bytes : new Uint8Array(bytes);
}
