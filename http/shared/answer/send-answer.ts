// Answers that are not streamed: a generation collected to its end, then written as one JSON body.
import type { GenerateRequest } from "../../../engines/generation.ts";
import type { Context } from "../../context.ts";
import { type Exchange, jsonHeaders } from "../../exchange.ts";
import { type Answer, collectAnswer } from "./answer.ts";
import { jsonPieces } from "./json-pieces.ts";
import { sendPieces } from "./pieces.ts";

/**
 * Answers a request with what its generation comes to; about `prefixLength` characters are put before the text of each choice. What
 * fails is thrown before anything is sent.
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
