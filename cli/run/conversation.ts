// Conversation: model, adapter, system prompt, request fields and turns. Plain state without I/O; the commands and the REPL
// change it.
import type { ChatMessage } from "../../engines/generation.ts";
import { builtInDefaults, type GenerationDefaults } from "../../engines/sampling-defaults.ts";
import { ServerError } from "../../runtime/errors.ts";
import { suggestion } from "../../runtime/nearest.ts";
import type { AnswerFields } from "./answer-fields.ts";

export interface Turn {
  readonly question: string;
  readonly answer: string;
  /** Whether the answer was interrupted. */
  readonly isCut: boolean;
}

/** Adapter aliases of each model, by model id. */
export type AdaptersByModel = ReadonlyMap<string, readonly string[]>;

/** Defaults of each model, by model id. A model that is absent has the built-in defaults. */
export type DefaultsByModel = ReadonlyMap<string, GenerationDefaults>;

export class Conversation {
  /** Ids of the available models, in the order of the settings. */
  readonly models: readonly string[];
  system: string | null = null;
  /** Request fields of the next questions. */
  fields: AnswerFields = {};
  readonly #adapters: AdaptersByModel;
  readonly #defaults: DefaultsByModel;
  #model: string;
  #adapter: string | null = null;
  #turns: Turn[] = [];

  constructor(
    models: readonly string[],
    model: string,
    adapters: AdaptersByModel = new Map(),
    defaults: DefaultsByModel = new Map(),
  ) {
    this.models = models;
    this.#model = model;
    this.#adapters = adapters;
    this.#defaults = defaults;
  }

  get model(): string {
    return this.#model;
  }

  /** Alias of the current adapter; null for the base model. */
  get adapter(): string | null {
    return this.#adapter;
  }

  /** Adapter aliases of the current model. */
  get adapters(): readonly string[] {
    return this.#adapters.get(this.#model) ?? [];
  }

  /** Defaults of the current model, for fields that are not set. */
  get defaults(): GenerationDefaults {
    return this.#defaults.get(this.#model) ?? builtInDefaults;
  }

  get turns(): readonly Turn[] {
    return this.#turns;
  }

  /** Switches to another model and to no adapter. Throws model_not_found. */
  useModel(model: string): void {
    if (!this.models.includes(model)) {
      const found = suggestion(model, this.models);
      throw new ServerError(
        "model_not_found",
        `no model "${model}" is loaded${found || `; loaded: ${this.models.join(", ")}`}`,
      );
    }
    this.#model = model;
    this.#adapter = null;
  }

  /** Switches to an adapter of the current model, or to the base model if `alias` is null. Throws lora_adapter_not_found. */
  useAdapter(alias: string | null): void {
    const { adapters } = this;
    if (alias !== null && !adapters.includes(alias)) {
      const known = adapters.length === 0 ? "; it has none" : `; it has: ${adapters.join(", ")}`;
      const found = suggestion(alias, adapters) || known;
      throw new ServerError("lora_adapter_not_found", `the model has no adapter "${alias}"${found}`);
    }
    this.#adapter = alias;
  }

  add(turn: Turn): void {
    this.#turns.push(turn);
  }

  /** Removes all turns. The system prompt, the model and the adapter stay. */
  clear(): void {
    this.#turns = [];
  }

  /** Returns the conversation as chat messages, followed by `question` if given. */
  messages(question?: string): ChatMessage[] {
    return [
      ...(this.system === null ? [] : [{ role: "system", content: this.system }]),
      ...this.#turns.flatMap((turn) => [
        { role: "user", content: turn.question },
        { role: "assistant", content: turn.answer },
      ]),
      ...(question === undefined ? [] : [{ role: "user", content: question }]),
    ];
  }
}
