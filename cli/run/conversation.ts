// Owns one conversation as it stands: the model it is held with and the adapter, the system prompt, and what was asked and
// answered. Plain state; it neither reads nor writes anything. Changed by the commands and by the REPL.
import type { ChatMessage } from "../../engines/generation.ts";
import { ServerError } from "../../runtime/errors.ts";
import { suggestion } from "../../runtime/nearest.ts";

export interface Turn {
  readonly question: string;
  readonly answer: string;
  /** The answer was stopped before its end. */
  readonly isCut: boolean;
}

/** Aliases of the adapters of each model that has any. */
export type AdaptersByModel = ReadonlyMap<string, readonly string[]>;

export class Conversation {
  /** The models it can be held with, in configured order. */
  readonly models: readonly string[];
  system: string | null = null;
  readonly #adapters: AdaptersByModel;
  #model: string;
  #adapter: string | null = null;
  #turns: Turn[] = [];

  constructor(models: readonly string[], model: string, adapters: AdaptersByModel = new Map()) {
    this.models = models;
    this.#model = model;
    this.#adapters = adapters;
  }

  get model(): string {
    return this.#model;
  }

  /** The alias of the adapter that answers are given with; null for the base model. */
  get adapter(): string | null {
    return this.#adapter;
  }

  /** Aliases of those that the model has. */
  get adapters(): readonly string[] {
    return this.#adapters.get(this.#model) ?? [];
  }

  get turns(): readonly Turn[] {
    return this.#turns;
  }

  /** Goes on with another model, without an adapter. Throws model_not_found. */
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

  /** Goes on with an adapter of the model, or with none. Throws lora_adapter_not_found. */
  useAdapter(alias: string | null): void {
    const { adapters } = this;
    if (alias !== null && !adapters.includes(alias)) {
      const known = adapters.length === 0 ? "; there is none" : `; there are: ${adapters.join(", ")}`;
      const found = suggestion(alias, adapters) || known;
      throw new ServerError("lora_adapter_not_found", `the model has no adapter "${alias}"${found}`);
    }
    this.#adapter = alias;
  }

  add(turn: Turn): void {
    this.#turns.push(turn);
  }

  /** Forgets what was said; the system prompt, the model and the adapter stay. */
  clear(): void {
    this.#turns = [];
  }

  /** The whole conversation as messages, with one more question where there is one. */
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
