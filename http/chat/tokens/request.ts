// Requests of POST /tokenize and POST /detokenize, in the forms of llama-server (`content`) and vLLM (`prompt`, `messages`).
import { z } from "zod";
import type { TokenSource } from "../../../actors/api/inference.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { addConflicts, type Conflict } from "../../shared/fields/conflicts.ts";
import { commonFields } from "../../shared/fields/fields.ts";
import { addMessageIssues } from "../conversation.ts";
import { askedRequest, chatRequestSchema } from "../request.ts";

type ChatPrompt = Extract<TokenSource, { readonly kind: "chat" }>["prompt"];

/** Maximum length in characters of a text to tokenize. */
const MAX_TEXT = 4 * 2 ** 20;
const MAX_TOKENS = 200_000;

const { model } = commonFields;
const text = z.string().max(MAX_TEXT).nullish();
const { messages, tools, tool_choice, enable_thinking, reasoning_effort } = chatRequestSchema.shape;
const { chat_template_kwargs, continue_final_message, add_generation_prompt } = chatRequestSchema.shape;

const chatFields = {
  messages: messages.nullish().meta({ description: messages.description }),
  tools,
  tool_choice,
  enable_thinking,
  reasoning_effort,
  chat_template_kwargs,
  continue_final_message,
  add_generation_prompt: add_generation_prompt.meta({
    description: "Add the beginning of the model's message. false: the tokens end with the last message.",
  }),
} as const;

export const tokenizeRequestSchema = z
  .strictObject({
    model,
    content: text.meta({ description: "Text to tokenize; the response has only `tokens`." }),
    prompt: text.meta({ description: "Text to tokenize; the response also has `count` and `max_model_len`." }),
    add_special: z
      .boolean()
      .nullish()
      .meta({ description: "With content: add the BOS token if the model requires it.", default: false }),
    add_special_tokens: z
      .boolean()
      .nullish()
      .meta({ description: "With prompt: add the BOS token if the model requires it.", default: true }),
    parse_special: z
      .boolean()
      .nullish()
      .meta({ description: "Read the names of control tokens in the text as these tokens.", default: true }),
    with_pieces: z
      .boolean()
      .nullish()
      .meta({ description: "With content: return each token with its text, or its bytes.", default: false }),
    return_token_strs: z
      .boolean()
      .nullish()
      .meta({ description: "With prompt or messages: also return the text of each token.", default: false }),
    ...chatFields,
  })
  .superRefine((body, context) => {
    const { messages } = body;
    if (messages !== null && messages !== undefined)
      addMessageIssues(context, { ...body, messages, ...(isComplete(body) && asComplete) });
    addConflicts(context, conflicts(body));
  });

export type TokenizeRequestBody = z.output<typeof tokenizeRequestSchema>;

function* conflicts({ content, prompt, messages }: TokenizeRequestBody): Iterable<Conflict> {
  const given = Object.entries({ content, prompt, messages }).filter(
    ([, value]) => typeof (value ?? null) !== "object" || Array.isArray(value),
  );
  if (given.length === 1) return;
  yield [given[1]?.[0] ?? "content", `expected one of content, prompt and messages, got ${given.length}`];
}

/** Fields of the messages' end if all messages are complete. */
const asComplete = { add_generation_prompt: null, continue_final_message: false } as const;

/** Returns whether the tokens end with the last message: no further message begins, and none is continued. */
function isComplete({ add_generation_prompt: adds, continue_final_message: continues }: TokenizeRequestBody): boolean {
  return adds === false && continues !== true;
}

export function tokenSource(body: TokenizeRequestBody): TokenSource {
  const { content, prompt, messages } = body;
  if (messages !== null && messages !== undefined) {
    const asked = askedRequest({ ...body, messages, ...(isComplete(body) && asComplete) });
    if (asked.prompt.kind !== "chat") throw new Error("messages are a chat");
    if (asked.media !== undefined) throw withMedia();
    return { kind: "chat", prompt: isComplete(body) ? withoutOpening(asked.prompt) : asked.prompt, tools: asked.tools };
  }
  const isContent = typeof content === "string";
  return {
    kind: "text",
    text: (isContent ? content : prompt) ?? "",
    addsSpecial: isContent ? (body.add_special ?? false) : (body.add_special_tokens ?? true),
    readsControl: body.parse_special ?? true,
  };
}

export const detokenizeRequestSchema = z.strictObject({
  model,
  tokens: z.array(z.int32().min(0)).max(MAX_TOKENS).meta({ description: "Tokens of the model's vocabulary." }),
});

/** Returns a chat prompt without the opening of the model's message. */
function withoutOpening(prompt: ChatPrompt): ChatPrompt {
  const { templateArguments } = prompt;
  const variables = { ...templateArguments.variables, add_generation_prompt: false };
  return { ...prompt, templateArguments: { ...templateArguments, variables } };
}

function withMedia(): ServerError {
  const text =
    "messages: expected text, got images, videos or audio, which have no tokens of the vocabulary; POST /v1/responses/input_tokens counts prompts with them";
  return new ServerError("unsupported", text, { param: "messages" });
}
