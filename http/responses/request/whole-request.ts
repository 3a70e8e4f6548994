// Complete request: a response request together with the stored items that it refers to and the stored conversation that it
// continues. A text worker parses a long conversation.
import assert from "node:assert/strict";
import { openContent, sealContent } from "../../../actors/api/sealed-content.ts";
import type { ItemTexts } from "../../../actors/api/stored-responses.ts";
import type { RequestContent, SealedContent } from "../../../engines/generation.ts";
import type { TaskOutput } from "../../../runtime/task/task.ts";
import type { Context } from "../../context.ts";
import type { Exchange } from "../../exchange.ts";
import { MAX_BODY_READ_HERE } from "../../json.ts";
import { clientOf } from "../../server/client.ts";
import type { AnswerLease } from "../../shared/answer/answer-memory.ts";
import type { AskedRequest } from "../../shared/translation.ts";
import type { LastResponse } from "../stored/last-responses.ts";
import { referredItems } from "./input.ts";
import type { InputItem } from "./input-items.ts";
import { joinedTexts, parsedItems } from "./item-texts.ts";
import { type ConversationForm, messagesOf, type ResponseTranslation } from "./translator.ts";

/** Name under which text workers run the task `goOn`. */
export const goOnName = "conversation";

type Content = Pick<AskedRequest, "prompt" | "grammar" | "tools"> & { readonly form: ConversationForm };

interface WholeRequest {
  readonly asked: AskedRequest;
  /** Earlier conversation that the request continues. */
  readonly earlier: readonly ItemTexts[];
  /** Input items of the request itself, without the earlier conversation. */
  readonly input: ItemTexts;
}

/** Part of a translation that is needed to build the conversation of a request. */
type Composable = Pick<ResponseTranslation, "asked" | "input" | "isWhole" | "form"> & {
  readonly facts: { readonly previousId: string | null };
};

/**
 * Completes a request with its stored items. `last`: response that the request's WebSocket connection may continue. `lease`
 * counts the bytes of the items. Throws previous_response_not_found, not_found, conflict, invalid_value or queue_full.
 */
export async function wholeRequest(
  exchange: Exchange,
  { inference, responses }: Context,
  { facts, asked, input: given, isWhole, form }: Composable,
  lease: AnswerLease,
  last: LastResponse | null = null,
): Promise<WholeRequest> {
  const { previousId } = facts;
  const earlier = previousId === null ? [] : last?.id === previousId ? last.items : await responses.history(previousId);
  lease.add(earlier.reduce((sum, { texts }) => sum + texts.byteLength, 0));
  const input = await referredItems(given, responses, lease);
  if (isWhole) return { asked, earlier, input };
  const texts = joinedTexts([...earlier, input]);
  const { prompt, grammar, tools } = asked;
  if (prompt.kind !== "sealed" && texts.byteLength <= MAX_BODY_READ_HERE) {
    return { asked: { ...asked, ...withItems({ prompt, grammar, tools }, texts, form) }, earlier, input };
  }
  const content: Content = { prompt, grammar, tools, form };
  const message = { client: clientOf(exchange.request), protocol: goOnName, body: texts };
  const { signal } = exchange.request;
  const whole = (await inference.translate({ ...message, parameters: content }, signal)) as SealedContent;
  return { asked: { ...asked, prompt: whole, grammar: null, tools: null }, earlier, input };
}

/** Task of a text worker: adds the items to the prompt as a conversation, and serialises (seals) prompt, grammar and tools. */
export function goOn(texts: Uint8Array, parameters: unknown): TaskOutput {
  const { prompt, grammar, tools, form } = parameters as Content;
  const opened = prompt.kind === "sealed" ? openContent(prompt) : { prompt, grammar, tools };
  const whole = sealContent(withItems(opened, texts, form));
  return { value: whole, transfer: [whole.bytes.buffer as ArrayBuffer] };
}

/** Adds the conversation to a request whose `prompt` contains at most the instructions. */
function withItems(
  { prompt, grammar, tools }: RequestContent,
  texts: Uint8Array,
  form: ConversationForm,
): RequestContent {
  assert(prompt.kind === "chat", "a response answers a chat");
  const instructions = prompt.messages[0]?.content ?? null;
  const messages = messagesOf[form](instructions, parsedItems<InputItem>({ texts }));
  return { prompt: { ...prompt, messages }, grammar, tools };
}
