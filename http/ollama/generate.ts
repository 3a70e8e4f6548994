// Request of POST /api/generate: its schema and its translation to a GenerateRequest. The prompt is a user message in the model's
// chat template. With `raw`, the prompt is used without a template.
import { z } from "zod";
import { addConflicts, type Conflict } from "../shared/fields/conflicts.ts";
import { isEmptyArray, notBuiltYet, refused } from "../shared/fields/fields.ts";
import { contentOf, MediaCollector } from "../shared/fields/media-part.ts";
import { type AskedRequest, askedTranslator } from "../shared/translation.ts";
import {
  generationConflicts,
  generationFacts,
  generationFields,
  generationRequest,
  thinkingArguments,
} from "./fields.ts";
import { images, shownImages } from "./messages.ts";

const isEmptyText = (value: unknown): boolean => value === "";

export const generateRequestSchema = z
  .strictObject({
    prompt: z.string().nullish().meta({ description: "The prompt; without one the model is only loaded." }),
    system: z.string().nullish().meta({ description: "System message." }),
    raw: z
      .boolean()
      .nullish()
      .meta({ description: "Continue the prompt as it is, without a chat template.", default: false }),
    suffix: notBuiltYet("filling in before a suffix", isEmptyText),
    template: refused(
      "the chat template is the model's own, or the setting chat_template; send raw: true",
      isEmptyText,
    ),
    context: refused("conversations are not kept as tokens; send the messages to POST /api/chat", isEmptyArray),
    images,
    ...generationFields,
  })
  .superRefine((body, context) => addConflicts(context, conflicts(body)));

type GenerateRequestBody = z.output<typeof generateRequestSchema>;

export const generateTranslator = askedTranslator(
  "ollama-generate",
  generateRequestSchema,
  (body) => generationFacts(body, !body.prompt),
  (body): AskedRequest => ({ ...generationRequest(body, "prompt"), ...promptOf(body), tools: null }),
);

function promptOf(body: GenerateRequestBody): Pick<AskedRequest, "prompt" | "media"> {
  const text = body.prompt ?? "";
  if (body.raw) return { prompt: { kind: "text", text } };
  const media = new MediaCollector();
  const content = contentOf([{ text }, ...shownImages(body.images, "images", media)], "\n");
  const system = body.system ? [{ role: "system", content: body.system }] : [];
  const messages = [...system, { role: "user", ...content }];
  const { all } = media;
  return {
    prompt: { kind: "chat", messages, templateArguments: thinkingArguments(body) },
    ...(all && { media: all }),
  };
}

function* conflicts(body: GenerateRequestBody): Iterable<Conflict> {
  yield* generationConflicts(body);
  if (body.raw && body.system) yield ["system", "cannot be combined with raw: put it into the prompt"];
  if (body.raw && (body.images ?? []).length > 0) yield ["images", "cannot be combined with raw"];
  if (body.raw && body.think) yield ["think", "cannot be combined with raw: only a chat template asks for reasoning"];
}
