// Pair encoder: encodes a query and a document in the form that a reranker expects. The file of a generative reranker contains a
// template for the pair; an encoder model has a separator token. Created when a text worker opens a model.
import { chooseMarker, UserTextGuard } from "../../engines/text/template/user-text.ts";
import type { Vocabulary } from "../../engines/text/tokenizer/vocabulary.ts";
import { ServerError } from "../../runtime/errors.ts";

export class PairEncoder {
  readonly #vocabulary: Vocabulary;
  readonly #template: string | null;
  /** Guard against control tokens in the texts. Created at first use, because most models are not rerankers. */
  #guard: UserTextGuard | null = null;

  /** `template`: text with the placeholders {query} and {document}; null = the file has no template. */
  constructor(vocabulary: Vocabulary, template: string | null) {
    this.#vocabulary = vocabulary;
    this.#template = template;
  }

  /** Returns the tokens of a pair. Throws `unsupported` if the model's file has neither a template nor a separator token. */
  encode(query: string, document: string): Int32Array {
    const vocabulary = this.#vocabulary;
    const template = this.#template;
    if (template === null) {
      if (vocabulary.closingToken === null) throw noForm();
      return vocabulary.encodePair(query, document);
    }
    this.#guard ??= guardOf(vocabulary);
    const guard = this.#guard;
    const marker = chooseMarker([template, query, document]);
    const texts: Readonly<Record<string, string>> = { "{query}": query, "{document}": document };
    const text = template.replace(/\{(?:query|document)\}/g, (name) => guard.guard(texts[name] ?? "", marker));
    return vocabulary.encodePrompt({ text, marker });
  }
}

/** Returns a guard for client texts that are inserted into a text of the model's author. */
export function guardOf(vocabulary: Vocabulary): UserTextGuard {
  return new UserTextGuard({
    names: vocabulary.controlTokens.map((token) => vocabulary.tokenText(token)),
    namesIn: (text) => vocabulary.controlNamesIn(text),
  });
}

function noForm(): ServerError {
  const problem =
    "the model's file has neither a rerank template (tokenizer.chat_template.rerank) nor a separator token";
  return new ServerError(
    "unsupported",
    `${problem}, so it is unknown how to join query and document; convert the model again`,
    {
      param: "model",
    },
  );
}
