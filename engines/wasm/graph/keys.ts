// Keys: typed look-ups of one architecture's key/value pairs. Key names omit the architecture prefix. All returned
// values are in range, so callers need no checks. Used at load by hyperparameters.ts, ropes.ts and the architectures.
import { ServerError } from "../../../runtime/errors.ts";
import type { GgufValue } from "../../files/gguf/cursor.ts";
import { describeValue } from "../../files/gguf/invalid-file.ts";

export interface Range {
  readonly above: number;
  readonly below: number;
}

export function invalidKey(key: string, value: GgufValue | undefined, expected: string): ServerError {
  return new ServerError(
    "model_file_invalid",
    `the model's ${key} is ${describeValue(value)}; expected ${expected}: fetch another file of the model`,
  );
}

export class Keys {
  readonly #fields: ReadonlyMap<string, GgufValue>;
  readonly #prefix: string;

  constructor(fields: ReadonlyMap<string, GgufValue>, architecture: string) {
    this.#fields = fields;
    this.#prefix = `${architecture}.`;
  }

  value(key: string): GgufValue | undefined {
    return this.#fields.get(this.#prefix + key);
  }

  has(key: string): boolean {
    return this.value(key) !== undefined;
  }

  /** Returns a whole number from 1 to `max`, or `fallback` if the key is absent. */
  count(key: string, max: number, fallback?: number): number {
    const value = this.#single(key) ?? fallback;
    if (typeof value === "number" && Number.isInteger(value) && value >= 1 && value <= max) return value;
    throw this.invalid(key, `a whole number from 1 to ${max}`);
  }

  /** Like count(), but returns 0 if the key is 0 or absent. */
  countOrNone(key: string, max: number): number {
    return (this.#single(key) ?? 0) === 0 ? 0 : this.count(key, max);
  }

  number(key: string, range: Range, fallback?: number): number {
    const value = this.#single(key) ?? fallback;
    if (typeof value === "number" && value > range.above && value < range.below) return value;
    throw this.invalid(key, `a number above ${range.above} and below ${range.below}`);
  }

  /** Like number(), but returns `none` if the key is 0 or absent. */
  numberOr(key: string, range: Range, none: number): number {
    return (this.#single(key) ?? 0) === 0 ? none : this.number(key, range);
  }

  /** Returns a list of `count` booleans, one per layer; null if the key is absent or not a list. */
  truths(key: string, count: number): readonly boolean[] | null {
    const value = this.value(key);
    if (!Array.isArray(value)) return null;
    const truths = value.map((one) => (one === 0 || one === 1 ? one === 1 : one));
    if (truths.length === count && truths.every((one) => typeof one === "boolean")) return truths;
    throw this.invalid(key, `a list of ${count} truths`);
  }

  /** Throws if the key is present with a value other than `expected`. */
  mustBe(key: string, expected: number | boolean): void {
    if ((this.#single(key) ?? expected) !== expected) throw this.unsupported(key, String(expected));
  }

  invalid(key: string, expected: string): ServerError {
    return invalidKey(this.#prefix + key, this.value(key), expected);
  }

  unsupported(key: string, expected: string): ServerError {
    return new ServerError(
      "unsupported",
      `the model's ${this.#prefix}${key} is ${describeValue(this.value(key))}; the wasm engine runs ${expected}: ` +
        "use --engine llama for this model",
      { param: "engine" },
    );
  }

  /**
   * Returns the key's one value. A list of equal values, one per layer, counts as one value, because some converters
   * write such lists.
   */
  #single(key: string): GgufValue | undefined {
    const value = this.value(key);
    if (!Array.isArray(value)) return value;
    const [first] = value;
    const isOne = value.length === this.value("block_count") && value.every((one) => one === first);
    if (!isOne) throw this.unsupported(key, "models with one value for all layers");
    return first;
  }
}
