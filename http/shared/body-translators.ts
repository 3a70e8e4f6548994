// Body translators of all inference routes, for text workers, which load this module. Its interface is TranslatorModule.
import type { BodyTranslators } from "../../actors/api/body-translators.ts";
import type { TaskOutput } from "../../runtime/task/task.ts";
import { speechTranslator } from "../audio/speech-request.ts";
import { detokenizeTranslator, tokenizeTranslator } from "../chat/tokens/translator.ts";
import { chatTranslator } from "../chat/translator.ts";
import { completionTranslator } from "../completions/translator.ts";
import { embeddingTranslator } from "../embeddings/translator.ts";
import { imageTranslator } from "../images/translator.ts";
import { parseJson } from "../json.ts";
import { countTranslator, messagesTranslator } from "../messages/request/translator.ts";
import { chatTranslator as ollamaChatTranslator } from "../ollama/chat.ts";
import { embedTranslator, oneEmbeddingTranslator } from "../ollama/embed.ts";
import { generateTranslator } from "../ollama/generate.ts";
import { rerankTranslator } from "../rerank/translator.ts";
import { compactTranslator, messageTranslator, responseTranslator } from "../responses/request/translator.ts";
import { goOn, goOnName } from "../responses/request/whole-request.ts";
import { sessionTranslator } from "../sessions/translator.ts";
import { takeAudio, takeAudioName } from "./audio/extract-audio.ts";
import type { BodyTranslator, Translation, TranslationInput } from "./translation.ts";

type Translate = (body: Uint8Array, parameters: unknown) => TaskOutput;

const byName = new Map<string, Translate>([
  reader(chatTranslator),
  reader(completionTranslator),
  reader(embeddingTranslator),
  reader(imageTranslator),
  reader(rerankTranslator),
  reader(speechTranslator),
  reader(tokenizeTranslator),
  reader(detokenizeTranslator),
  reader(messagesTranslator),
  reader(countTranslator),
  reader(responseTranslator),
  reader(messageTranslator),
  reader(compactTranslator),
  reader(ollamaChatTranslator),
  reader(generateTranslator),
  reader(sessionTranslator),
  reader(embedTranslator),
  reader(oneEmbeddingTranslator),
  [goOnName, goOn],
  [takeAudioName, takeAudio],
]);

export const translators: BodyTranslators = {
  translate(protocol, body, parameters) {
    const translate = byName.get(protocol);
    if (translate === undefined) throw new Error(`no translator "${protocol}"`);
    return translate(body, parameters);
  },
};

function reader<T extends Translation>({ name, translate, pack }: BodyTranslator<T>): readonly [string, Translate] {
  return [
    name,
    (body, input) => {
      const { parameters, unknownFields } = input as TranslationInput;
      return pack(translate(parseJson(body), parameters, unknownFields));
    },
  ];
}
