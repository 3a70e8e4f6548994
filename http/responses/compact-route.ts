// POST /v1/responses/compact: replaces a conversation by a summary that the model writes. To continue the conversation, the
// client uses the returned items as the beginning of its input. Nothing is stored.
import type { Inference } from "../../actors/api/inference.ts";
import type { ItemTexts } from "../../actors/api/stored-responses.ts";
import type { GenerateEvent, GenerateRequest, Usage } from "../../engines/generation.ts";
import { fromErrorRecord, ServerError } from "../../runtime/errors.ts";
import type { RouteHandler } from "../context.ts";
import { jsonHeaders } from "../exchange.ts";
import { clientOf } from "../server/client.ts";
import type { AnswerLease } from "../shared/answer/answer-memory.ts";
import { jsonPieces } from "../shared/answer/json-pieces.ts";
import { sendPieces } from "../shared/answer/pieces.ts";
import { chosenModel } from "../shared/chosen-model.ts";
import { originOf } from "../shared/origin.ts";
import { readRequest } from "../shared/read-request.ts";
import { newResponseId } from "./create-route.ts";
import { itemId } from "./fold/fold.ts";
import { wireUsage } from "./fold/resource.ts";
import { compactionContent } from "./request/compaction.ts";
import { instructionItems } from "./request/summary.ts";
import { compactTranslator } from "./request/translator.ts";
import { wholeRequest } from "./request/whole-request.ts";

const MAX_SUMMARY_TOKENS = 2048;
/** A summary of fewer tokens would lose most of a conversation that fills the context. */
const MIN_SUMMARY_TOKENS = 128;

export const compactConversation: RouteHandler = async (exchange, context) => {
  const { inference, answerMemory, config } = context;
  const id = newResponseId();
  const translation = await readRequest(exchange, context, compactTranslator, { responseId: id, offered: null });
  const model = chosenModel(exchange, inference, translation.facts);
  const kept = answerMemory.lease(clientOf(exchange.request));
  try {
    const { asked, earlier, input } = await wholeRequest(exchange, context, translation, kept);
    const items = [...earlier, input];
    const instructions = instructionItems(items);
    const wanted = { ...asked, maxTokens: summaryTokens(items), ...originOf(exchange, model, false) };
    const { signal } = exchange.request;
    const maxTokens = await fittingLimit(inference, withOwnBytes(wanted, kept), signal);
    const events = inference.generate({ ...wanted, maxTokens }, signal, () => exchange.request.releaseBody());
    const { text, usage } = await summaryOf(events);
    const compaction = { type: "compaction", id: itemId("cmp", id, 0), encrypted_content: compactionContent(text) };
    const compacted = {
      id,
      object: "response.compaction",
      created_at: Math.floor(Date.now() / 1000),
      output: [...instructions, compaction],
      usage: wireUsage(usage),
    };
    await sendPieces(exchange, jsonHeaders, jsonPieces(compacted), config);
  } finally {
    kept.release();
  }
};

/**
 * Returns the token limit of a summary: one token per byte of the conversation. Without this limit, a weak model that repeats
 * itself could write a long summary of a short conversation.
 */
function summaryTokens(items: readonly ItemTexts[]): number {
  return items.reduce((sum, { texts }) => Math.min(sum + texts.byteLength, MAX_SUMMARY_TOKENS), 0);
}

/**
 * Returns the token limit of a summary request, or the rest of the context if this is less: clients have a conversation summarised
 * when it almost fills the context. The content of the request is moved to another thread.
 */
async function fittingLimit(
  inference: Pick<Inference, "countTokens">,
  request: GenerateRequest & { readonly maxTokens: number },
  signal: AbortSignal,
): Promise<number> {
  const { maxTokens } = request;
  try {
    await inference.countTokens(request, signal);
    return maxTokens;
  } catch (error) {
    const room = roomAfter(error);
    // With too little room, and after any other error, the generation reports the error.
    return room < Math.min(maxTokens, MIN_SUMMARY_TOKENS) ? maxTokens : room;
  }
}

/** Returns a request with a copy of its sealed content. `lease`: counts the bytes of the copy. */
function withOwnBytes<R extends GenerateRequest>(request: R, lease: AnswerLease): R {
  const { prompt } = request;
  if (prompt.kind !== "sealed") return request;
  lease.add(prompt.bytes.byteLength);
  return { ...request, prompt: { ...prompt, bytes: prompt.bytes.slice() } };
}

/** Returns how many tokens fit in the context after a prompt that was refused together with its output; 0 for other errors. */
function roomAfter(error: unknown): number {
  const lengths = error instanceof ServerError ? error.lengths : undefined;
  return lengths === undefined ? 0 : Math.max(lengths.limit - lengths.prompt, 0);
}

/** Returns the text of a generation. Throws the error of the generation, or model_failed if there is no text. */
async function summaryOf(
  events: AsyncIterable<readonly GenerateEvent[]>,
): Promise<{ readonly text: string; readonly usage: Usage }> {
  let text = "";
  for await (const batch of events) {
    for (const event of batch) {
      if (event.type === "error") throw fromErrorRecord(event.error);
      if (event.type === "text") text += event.text;
      if (event.type !== "done") continue;
      if (text.trim() === "") throw new ServerError("model_failed", "the model wrote no summary; try another model");
      return { text: text.trim(), usage: event.usage };
    }
  }
  throw new ServerError("peer_gone", "the generation ended before it was done; send the request again");
}
