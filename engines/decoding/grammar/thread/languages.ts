// Languages: each language combines a grammar engine with a vocabulary. There is one language for each set of control
// tokens that grammars treat as text. Most grammars treat no control tokens as text. The tool calls of a model have one
// format, so usually there are only two sets: the empty set, and the control tokens of the tool call format.
import type { CompiledGrammar } from "@mlc-ai/web-xgrammar";
import type { GrammarSource } from "../../../grammar-source.ts";
import { GrammarEngine } from "./library.ts";
import { MaskedVocabulary } from "./masked-vocabulary.ts";
import type { MatcherBuffer } from "./matcher-buffer.ts";
import { Matching } from "./matching.ts";
import type { WorkerSetup } from "./messages.ts";

/** Maximum number of languages that treat control tokens as text. Each takes as much memory as a vocabulary. */
const maxShown = 3;

export class Languages {
  readonly #plain: Language;
  /** Languages by the control tokens that they treat as text, least recently used first. */
  readonly #shown = new Map<string, Language>();

  static async load({ modelPath, vocabSize, endOfGeneration }: WorkerSetup): Promise<Languages> {
    const vocabulary = await MaskedVocabulary.read(modelPath, vocabSize, endOfGeneration);
    const engine = await GrammarEngine.load(vocabulary.pieces, vocabulary.endTokens);
    return new Languages(new Language(vocabulary, engine));
  }

  private constructor(plain: Language) {
    this.#plain = plain;
  }

  get isFull(): boolean {
    return this.#plain.engine.isFull;
  }

  explain(thrown: unknown): string {
    return this.#plain.engine.explain(thrown);
  }

  async compile(source: GrammarSource): Promise<Compiled> {
    const language = await this.#of(source.shownTokens ?? []);
    return new Compiled(language, await language.engine.compile(source));
  }

  async #of(tokens: readonly number[]): Promise<Language> {
    if (tokens.length === 0) return this.#plain;
    const key = tokens.join();
    const language = this.#shown.get(key) ?? (await this.#plain.showing(tokens));
    this.#shown.delete(key);
    this.#shown.set(key, language);
    if (this.#shown.size > maxShown) this.#dropOldest();
    return language;
  }

  /**
   * Drops the least recently used language. Grammars compiled in it remain usable, because they keep the memory they
   * need.
   */
  #dropOldest(): void {
    for (const [key, language] of this.#shown) {
      this.#shown.delete(key);
      language.engine.dispose();
      return;
    }
  }
}

class Language {
  readonly vocabulary: MaskedVocabulary;
  readonly engine: GrammarEngine;

  constructor(vocabulary: MaskedVocabulary, engine: GrammarEngine) {
    this.vocabulary = vocabulary;
    this.engine = engine;
  }

  async showing(tokens: readonly number[]): Promise<Language> {
    const vocabulary = this.vocabulary.showing(tokens);
    return new Language(vocabulary, await this.engine.withPieces(vocabulary.pieces, vocabulary.endTokens));
  }
}

/** A compiled grammar and the language that it was compiled in. */
export class Compiled {
  readonly #language: Language;
  readonly #grammar: CompiledGrammar;

  constructor(language: Language, grammar: CompiledGrammar) {
    this.#language = language;
    this.#grammar = grammar;
  }

  async match(buffer: MatcherBuffer): Promise<Matching> {
    const { engine, vocabulary } = this.#language;
    return new Matching(await engine.match(this.#grammar), vocabulary, buffer);
  }

  dispose(): void {
    this.#grammar.dispose();
  }
}
