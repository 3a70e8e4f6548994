// Owns one conversation as it stands: the model it is held with, the system prompt, and what was asked and answered. Plain
// state; it neither reads nor writes anything. Changed by the commands and by the REPL.
import type { ChatMessage } from "../../engines/chat.ts";
import { suggestion } from "../../runtime/config/nearest.ts";
import { ServerError } from "../../runtime/errors.ts";

export interface Turn {
  readonly question: string;
  readonly answer: string;
  /** The answer was stopped before its end. */
  readonly isCut: boolean;
}

export class Conversation {
  /** The models it can be held with, in configured order. */
  readonly models: readonly string[];
  system: string | null = null;
  #model: string;
  #turns: Turn[] = [];

  constructor(models: readonly string[], model: string) {
    this.models = models;
    this.#model = model;
  }

  get model(): string {
    return this.#model;
  }

  get turns(): readonly Turn[] {
    return this.#turns;
  }

  /** Goes on with another model. Throws model_not_found. */
  useModel(model: string): void {
    if (!this.models.includes(model)) {
      const found = suggestion(model, this.models);
      throw new ServerError(
        "model_not_found",
        `no model "${model}" is loaded${found || `; loaded: ${this.models.join(", ")}`}`,
      );
    }
    this.#model = model;
  }

  add(turn: Turn): void {
    this.#turns.push(turn);
  }

  /** Forgets what was said; the system prompt and the model stay. */
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
