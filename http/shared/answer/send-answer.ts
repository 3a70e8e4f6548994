// Responses that are not streamed: the complete result of a generation is collected and then sent as one JSON body.
import type { GenerateRequest } from "../../../engines/generation.ts";
import type { Context } from "../../context.ts";
import { type Exchange, jsonHeaders } from "../../exchange.ts";
import { type Answer, collectAnswer } from "./answer.ts";
import { jsonPieces } from "./json-pieces.ts";
import { sendPieces } from "./pieces.ts";

/**
 * Sends the complete result of a generation. `prefixLength` is the approximate number of characters that the route puts before
 * the text of each choice. Errors are thrown before anything is sent.
 */
export async function sendAnswer(
  exchange: Exchange,
  { inference, answerMemory, config }: Context,
  request: GenerateRequest,
  prefixLength: number,
  bodyOf: (answer: Answer) => object,
): Promise<void> {
  const lease = answerMemory.lease(request.client);
  try {
    const events = inference.generate(request, exchange.request.signal, () => exchange.request.releaseBody());
    const texts = () => inference.tokenTexts(request.model);
    const choiceCount = request.choices;
    const answer = await collectAnswer(events, { choiceCount, prefixLength, texts, lease });
    const body = bodyOf(answer);
    if (answer.isLong) await sendPieces(exchange, jsonHeaders, jsonPieces(body), config);
    else exchange.json(200, body);
  } finally {
    lease.release();
  }
}
