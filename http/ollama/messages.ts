// Messages of an Ollama chat: their schema, and their translation to ChatMessages. Tool calls need no ids in this protocol, so
// results are matched to calls by tool name, or by order.
import { z } from "zod";
import type { ChatMessage, ToolCall } from "../../engines/generation.ts";
import { isBounded, tooLarge } from "../shared/fields/bounded.ts";
import { ignored } from "../shared/fields/fields.ts";
import { type ContentPart, contentOf, type MediaCollector } from "../shared/fields/media-part.ts";
import { resultsInCallOrder } from "../shared/fields/tools/result-order.ts";

const MAX_NAME_LENGTH = 256;
const MAX_CALLS = 256;

const name = z.string().min(1).max(MAX_NAME_LENGTH);

const MAX_IMAGES = 1024;

export const images = z
  .array(z.string().min(1))
  .max(MAX_IMAGES)
  .nullish()
  .meta({ description: "Images in base64, shown after the text." });

const toolCall = z.strictObject({
  id: z.string().max(MAX_NAME_LENGTH).nullish(),
  type: ignored(z.literal("function"), "all calls are calls of functions"),
  function: z.strictObject({
    name,
    arguments: z
      .record(z.string(), z.unknown())
      .refine(isBounded, { error: tooLarge("arguments") })
      .nullish(),
    description: ignored(z.string(), "the tools of the request have descriptions"),
    index: ignored(z.int(), "calls have the order of the list"),
  }),
});

const message = z
  .strictObject({
    role: z.enum(["system", "user", "assistant", "tool"]),
    content: z.string().nullish(),
    images,
    thinking: z.string().nullish().meta({ description: "Role assistant: reasoning before the content." }),
    tool_calls: z.array(toolCall).max(MAX_CALLS).nullish().meta({ description: "Role assistant: calls, in order." }),
    tool_name: z.string().max(MAX_NAME_LENGTH).nullish().meta({ description: "Role tool: tool whose result this is." }),
    tool_call_id: z.string().max(MAX_NAME_LENGTH).nullish().meta({ description: "Role tool: id of the call." }),
  })
  .superRefine(({ role, thinking, tool_calls, images: shown }, context) => {
    if (role === "assistant") return;
    if (role === "system" && (shown ?? []).length > 0) {
      context.addIssue({ code: "custom", path: ["images"], message: "images are allowed in user messages only" });
    }
    const wrong = (tool_calls ?? []).length > 0 ? "tool_calls" : thinking ? "thinking" : null;
    if (wrong !== null) context.addIssue({ code: "custom", path: [wrong], message: 'needs role "assistant"' });
  });

export const messagesField = z
  .array(message)
  .nullish()
  .meta({ description: "The conversation; without messages the model is only loaded." });

type WireMessages = NonNullable<z.output<typeof messagesField>>;
type WireMessage = WireMessages[number];
type WireCall = NonNullable<WireMessage["tool_calls"]>[number];

/** Returns the messages. Their images are added to `media`. Throws invalid_value if an image is not base64. */
export function conversation(messages: WireMessages, media: MediaCollector): readonly ChatMessage[] {
  const calls = new CallIds();
  const told = messages.map((message, i): ChatMessage => {
    const { role, thinking, tool_calls } = message;
    const shown = shownImages(message.images, `messages[${i}].images`, media);
    const content = contentOf([{ text: message.content ?? "" }, ...shown], "\n");
    if (role === "tool") return { role, ...content, ...calls.answered(message) };
    const made = (tool_calls ?? []).map((call) => calls.made(call));
    return {
      role,
      ...content,
      ...(thinking ? { reasoning: thinking } : {}),
      ...(made.length === 0 ? {} : { toolCalls: made }),
    };
  });
  return resultsInCallOrder(told);
}

/** Adds images in base64 to `media`. Returns them as the media of a message. */
export function shownImages(
  sent: readonly string[] | null | undefined,
  param: string,
  media: MediaCollector,
): readonly ContentPart[] {
  return (sent ?? []).map((image, i) => ({ media: media.addBase64(image, `${param}[${i}]`) }));
}

/** Assigns ids to tool calls, and finds the call that a tool result belongs to. */
class CallIds {
  /** Calls without a result, in order. */
  readonly #open: ToolCall[] = [];
  #count = 0;

  made({ id, function: { name, arguments: values } }: WireCall): ToolCall {
    const call = { id: id || `call_${this.#count}`, name, arguments: JSON.stringify(values ?? {}) };
    this.#count++;
    this.#open.push(call);
    return call;
  }

  /** Returns the name and id of the call whose result a tool message contains, as fields of a ChatMessage. */
  answered({ tool_name: tool, tool_call_id: id }: WireMessage): Pick<ChatMessage, "name" | "toolCallId"> {
    const at = this.#open.findIndex((call) => (id ? call.id === id : !tool || call.name === tool));
    const [call] = at < 0 ? [] : this.#open.splice(at, 1);
    const name = tool || call?.name;
    const toolCallId = id || call?.id;
    return { ...(name ? { name } : {}), ...(toolCallId ? { toolCallId } : {}) };
  }
}
