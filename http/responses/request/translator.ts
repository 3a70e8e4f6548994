// Translates the body of POST /v1/responses to the response's settings, the input items, and a generation request.
import type { z } from "zod";
import { movedWith } from "../../../actors/api/sealed-content.ts";
import type { ItemTexts } from "../../../actors/api/stored-responses.ts";
import type { TaskOutput } from "../../../runtime/task/task.ts";
import { acceptedBody } from "../../shared/accepted-body.ts";
import type { adapterField } from "../../shared/fields/adapter-field.ts";
import type { IgnoredField } from "../../shared/ignored.ts";
import { type AskedTranslation, type BodyTranslator, sealed } from "../../shared/translation.ts";
import { settingsText } from "../fold/resource.ts";
import { conversation, wholeConversation } from "./conversation.ts";
import { type InputReference, inputItems, isReference } from "./input.ts";
import type { NamedItem } from "./input-items.ts";
import { itemTexts } from "./item-texts.ts";
import {
  askedRequest,
  compactRequestSchema,
  continuesInput,
  type ResponseRequestBody,
  responseMessageSchema,
  responseRequestSchema,
} from "./request.ts";
import { summaryConversation } from "./summary.ts";
import { type FunctionName, namespacedNames } from "./tools.ts";

/**
 * Functions that build the messages of a request from a complete conversation: for the conversation itself, or for a request to
 * summarise it.
 */
export const messagesOf = { conversation: wholeConversation, summary: summaryConversation };

export type ConversationForm = keyof typeof messagesOf;

export interface ResponseFacts {
  readonly model: string | null | undefined;
  readonly adapter: z.output<typeof adapterField>;
  readonly previousId: string | null;
  readonly isStored: boolean;
  readonly isBackground: boolean;
  readonly isStreamed: boolean;
  /** Settings of the request that the response repeats, as JSON text in UTF-8. */
  readonly settings: Uint8Array;
  readonly namespacedNames: ReadonlyMap<string, FunctionName>;
}

export interface ResponseTranslation extends AskedTranslation<ResponseFacts> {
  readonly input: readonly (ItemTexts | InputReference)[];
  /**
   * Whether `asked` contains the complete conversation. If false, it contains only the instructions, and stored items must be
   * added.
   */
  readonly isWhole: boolean;
  readonly form: ConversationForm;
}

/** `parameters` of `translate`: the id of the new response, which the ids of its items contain. */
export const responseTranslator: BodyTranslator<ResponseTranslation> = {
  name: "responses",
  translate(value, responseId, unknownFields) {
    const { body, ignored } = acceptedBody(responseRequestSchema, value, unknownFields);
    return translated(body, ignored, responseId as string);
  },
  pack,
};

/** Translates a message of a WebSocket connection. */
export const messageTranslator: BodyTranslator<ResponseTranslation> = {
  name: "response.create",
  translate(value, responseId, unknownFields) {
    const { body, ignored } = acceptedBody(responseMessageSchema, value, unknownFields);
    return translated({ ...body, stream: true }, ignored, responseId as string);
  },
  pack,
};

/** Translates a request for the summary of a conversation: a response without reasoning and without randomness. */
export const compactTranslator: BodyTranslator<ResponseTranslation> = {
  name: "responses.compact",
  translate(value, responseId, unknownFields) {
    const { body, ignored } = acceptedBody(compactRequestSchema, value, unknownFields);
    const summary = { ...body, temperature: 0, reasoning: { effort: "off" } } as const;
    return translated(summary, ignored, responseId as string, "summary");
  },
  pack,
};

function translated(
  body: ResponseRequestBody,
  ignored: readonly IgnoredField[],
  responseId: string,
  form: ConversationForm = "conversation",
): ResponseTranslation {
  const items = inputItems(body.input, responseId);
  const previousId = body.previous_response_id ?? null;
  const instructions = body.instructions ?? null;
  const own = items.flatMap((item) => (isReference(item) ? [] : [item]));
  const isWhole = previousId === null && own.length === items.length;
  const facts: ResponseFacts = {
    model: body.model,
    adapter: body.adapter,
    previousId,
    isStored: body.store ?? true,
    isBackground: body.background ?? false,
    isStreamed: body.stream ?? false,
    settings: settingsText(body),
    namespacedNames: namespacedNames(body),
  };
  return {
    model: body.model,
    ignored,
    facts,
    asked: askedRequest(
      body,
      isWhole ? messagesOf[form](instructions, own) : conversation(instructions, []),
      form === "conversation" && continuesInput(body),
    ),
    input: inTexts(items),
    isWhole,
    form,
  };
}

function pack(translated: ResponseTranslation): TaskOutput {
  const asked = sealed(translated.asked);
  const settings = translated.facts.settings.buffer as ArrayBuffer;
  const texts = translated.input.flatMap((part) => (isReference(part) ? [] : [part.texts.buffer, part.ends.buffer]));
  return { value: { ...translated, asked }, transfer: [...movedWith(asked), settings, ...(texts as ArrayBuffer[])] };
}

/** Joins consecutive items into one ItemTexts. References to stored items stay separate. */
function inTexts(items: readonly (NamedItem | InputReference)[]): readonly (ItemTexts | InputReference)[] {
  const parts: (ItemTexts | InputReference)[] = [];
  let own: NamedItem[] = [];
  for (const item of items) {
    if (!isReference(item)) {
      own.push(item);
      continue;
    }
    if (own.length > 0) parts.push(itemTexts(own));
    parts.push(item);
    own = [];
  }
  if (own.length > 0) parts.push(itemTexts(own));
  return parts;
}
