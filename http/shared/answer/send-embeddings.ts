// Embedding responses of all protocols: computes the vectors, counts their memory, and sends them as pieces of JSON.
import type { Embeddings, EmbedRequest, ResolvedModel } from "../../../actors/api/inference.ts";
import { ServerError } from "../../../runtime/errors.ts";
import type { Context } from "../../context.ts";
import { type Exchange, jsonHeaders } from "../../exchange.ts";
import { clientOf } from "../../server/client.ts";
import { sendPieces } from "./pieces.ts";

/** EmbedRequest without the fields `model`, `client` and `query`. */
export type AskedEmbeddings = Omit<EmbedRequest, "model" | "client" | "query">;

/** Sends the embeddings of the inputs. Errors are thrown before anything is sent. */
export async function sendEmbeddings(
  exchange: Exchange,
  { inference, answerMemory, config }: Context,
  { id: model, adapter }: ResolvedModel,
  asked: AskedEmbeddings,
  piecesOf: (made: Embeddings) => Iterable<string>,
): Promise<void> {
  if (adapter !== null) {
    const text = `model: expected a model without an adapter, as embeddings do not use adapters; send ${JSON.stringify(model)}`;
    throw new ServerError("unsupported", text, { param: "model" });
  }
  const { request } = exchange;
  const client = clientOf(request);
  const lease = answerMemory.lease(client);
  try {
    const made = await inference.embed({ ...asked, model, client }, request.signal);
    lease.add(made.vectors.reduce((bytes, vector) => bytes + vector.byteLength, 0));
    await sendPieces(exchange, jsonHeaders, piecesOf(made), config);
  } finally {
    lease.release();
  }
}
