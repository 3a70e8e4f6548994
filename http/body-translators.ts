// The module that text workers read request bodies with: see TranslatorModule. One line a route that is asked for inference.
import type { BodyTranslators } from "../actors/text-tasks/body-translators.ts";
import { chatTranslator } from "./chat/translator.ts";
import { completionTranslator } from "./completions/translator.ts";
import { embeddingTranslator } from "./embeddings/translator.ts";
import { parseJson } from "./json.ts";
import { countTranslator, messagesTranslator } from "./messages/translator.ts";
import { type BodyTranslator, openedContent, type Translation } from "./translation.ts";

const all: readonly BodyTranslator<Translation>[] = [
  chatTranslator,
  completionTranslator,
  embeddingTranslator,
  messagesTranslator,
  countTranslator,
];
const byName = new Map(all.map((translator) => [translator.name, translator]));

export const translators: BodyTranslators = {
  translate(protocol, body, parameters) {
    const translator = byName.get(protocol);
    if (translator === undefined) throw new Error(`no translator "${protocol}"`);
    return translator.pack(translator.translate(parseJson(body), parameters));
  },
  open(sealed) {
    const content = openedContent(sealed);
    if (content === null) throw new Error(`no opener "${sealed.opener}"`);
    return content;
  },
};
