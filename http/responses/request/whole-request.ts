// Complete request: adds to a response request the stored items that it references and the stored conversation that it
// continues. A text worker parses a long conversation.
import assert from "node:assert/strict";
import type { AgentOptions } from "../../../actors/api/agent/agents.ts";
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
import {
  agentOf,
  type ConversationFacts,
  type ConversationForm,
  conversationFacts,
  messagesOf,
  type ResponseTranslation,
} from "./translator.ts";

/** Name under which text workers run the task `goOn`. */
export const goOnName = "conversation";

type Content = Pick<AskedRequest, "prompt" | "grammar" | "tools"> & {
  readonly form: ConversationForm;
  /** Tools instead of `tools` if the conversation has files; null: `tools`. */
  readonly fileTools: AskedRequest["tools"];
};

interface WholeRequest {
  readonly asked: AskedRequest;
  /** Options of the agent loop; null if the request does not use the loop. */
  readonly agent: AgentOptions | null;
  /** Earlier conversation that the request continues. */
  readonly earlier: readonly ItemTexts[];
  /** Input items in the request itself, without the earlier conversation. */
  readonly input: ItemTexts;
}

/** Fields of a translation from which the conversation of a request is built. */
type Composable = Pick<ResponseTranslation, "asked" | "agent" | "conversation" | "input" | "isWhole" | "form"> & {
  readonly facts: { readonly previousId: string | null };
};

/** Result of the task `goOn`: the request content with the conversation in its prompt, in serialised (sealed) form. */
interface SealedConversation {
  readonly content: SealedContent;
  readonly media: AskedRequest["media"];
  readonly facts: ConversationFacts;
}

/**
 * Completes a request with its stored items. `last`: response of the WebSocket connection that the request may continue.
 * `lease`: counts the bytes of the items. Throws previous_response_not_found, not_found, conflict, invalid_value or queue_full.
 */
export async function wholeRequest(
  exchange: Exchange,
  { inference, responses }: Context,
  { facts, asked, agent, conversation, input: given, isWhole, form }: Composable,
  lease: AnswerLease,
  last: LastResponse | null = null,
): Promise<WholeRequest> {
  const { previousId } = facts;
  const earlier = previousId === null ? [] : last?.id === previousId ? last.items : await responses.history(previousId);
  lease.add(earlier.reduce((sum, { texts }) => sum + texts.byteLength, 0));
  const input = await referredItems(given, responses, lease);
  if (isWhole) return { asked, agent: agentOf(agent, conversation), earlier, input };
  const texts = joinedTexts([...earlier, input]);
  const { prompt, grammar, tools } = asked;
  const rest: Pick<Content, "form" | "fileTools"> = { form, fileTools: agent?.fileTools?.use ?? null };
  if (prompt.kind !== "sealed" && texts.byteLength <= MAX_BODY_READ_HERE) {
    const { content, media, facts: composed } = withItems({ prompt, grammar, tools }, texts, rest);
    return {
      asked: { ...asked, ...content, ...(media && { media }) },
      agent: agentOf(agent, composed),
      earlier,
      input,
    };
  }
  const content: Content = { prompt, grammar, tools, ...rest };
  const message = { client: clientOf(exchange.request), protocol: goOnName, body: texts };
  const { signal } = exchange.request;
  const whole = (await inference.translate({ ...message, parameters: content }, signal)) as SealedConversation;
  const options = agentOf(agent, whole.facts);
  const { content: sealedContent, media } = whole;
  const composed = { ...asked, prompt: sealedContent, grammar: null, tools: null, ...(media && { media }) };
  return { asked: composed, agent: options, earlier, input };
}

/**
 * Task of a text worker: adds the items to the prompt, as a conversation. Returns prompt, grammar and tools in serialised
 * (sealed) form.
 */
export function goOn(texts: Uint8Array, parameters: unknown): TaskOutput {
  const { prompt, grammar, tools, ...rest } = parameters as Content;
  const opened = prompt.kind === "sealed" ? openContent(prompt) : { prompt, grammar, tools };
  const { content, media, facts } = withItems(opened, texts, rest);
  const whole: SealedConversation = { content: sealContent(content), media, facts };
  return { value: whole, transfer: [whole.content.bytes.buffer as ArrayBuffer] };
}

/** Adds the conversation to a request whose `prompt` contains only the instructions, or is empty. */
function withItems(
  { prompt, grammar, tools }: RequestContent,
  texts: Uint8Array,
  { form, fileTools }: Pick<Content, "form" | "fileTools">,
): {
  readonly content: RequestContent;
  readonly media: AskedRequest["media"];
  readonly facts: ConversationFacts;
} {
  assert(prompt.kind === "chat", "a response answers a chat");
  const instructions = prompt.messages[0]?.content ?? null;
  const whole = messagesOf[form](instructions, parsedItems<InputItem>({ texts }));
  const offered = whole.files.length > 0 ? (fileTools ?? tools) : tools;
  const content = { prompt: { ...prompt, messages: whole.messages }, grammar, tools: offered };
  return { content, media: whole.media, facts: conversationFacts(whole) };
}
