// Pairs: the GGUF key/value pairs, with types, of a model that is being converted. All methods except set() add the
// architecture prefix to a key. A later value of a key replaces an earlier one.
import { ServerError } from "../../../runtime/errors.ts";
import type { NumberType, TypedValue } from "../gguf/typed-value.ts";

export class Pairs {
  readonly architecture: string;
  readonly #path: string;
  readonly #values = new Map<string, TypedValue>();

  /** `path`: path of config.json, which errors name. */
  constructor(architecture: string, path: string) {
    this.architecture = architecture;
    this.#path = path;
  }

  /** All pairs with their full keys. */
  get values(): ReadonlyMap<string, TypedValue> {
    return this.#values;
  }

  /** Sets a pair by its full key, to which no architecture prefix is added. */
  set(key: string, value: TypedValue): void {
    this.#values.set(key, value);
  }

  /** Sets whole numbers; an undefined value is left out. */
  counts(values: Readonly<Record<string, number | undefined>>): void {
    this.#numbers("u32", values);
  }

  floats(values: Readonly<Record<string, number | undefined>>): void {
    this.#numbers("f32", values);
  }

  truth(key: string, value: boolean): void {
    this.set(this.#full(key), { type: "bool", value });
  }

  text(key: string, value: string): void {
    this.set(this.#full(key), { type: "string", value });
  }

  list(key: string, of: "i32", value: readonly number[]): void {
    for (const one of value) this.#check(key, of, one);
    this.set(this.#full(key), { type: "array", of, value });
  }

  truths(key: string, value: readonly boolean[]): void {
    this.set(this.#full(key), { type: "array", of: "bool", value });
  }

  remove(key: string): void {
    this.#values.delete(this.#full(key));
  }

  #numbers(type: NumberType, values: Readonly<Record<string, number | undefined>>): void {
    for (const [key, value] of Object.entries(values)) {
      if (value === undefined) continue;
      this.#check(key, type, value);
      this.set(this.#full(key), { type, value });
    }
  }

  /** Throws if a number does not fit its type, which means that the config's fields contradict each other. */
  #check(key: string, type: NumberType, value: number): void {
    const isWhole = Number.isInteger(value) && value >= 0 && value < 2 ** 31;
    if (type === "f32" ? Number.isFinite(Math.fround(value)) : isWhole) return;
    throw new ServerError(
      "model_file_invalid",
      `the fields of ${this.#path} give ${value} for the GGUF key ${this.#full(key)}, which must be ` +
        `${type === "f32" ? "a number" : "a whole number"}; fetch the model again, or set them with hf_overrides`,
    );
  }

  #full(key: string): string {
    return `${this.architecture}.${key}`;
  }
}
