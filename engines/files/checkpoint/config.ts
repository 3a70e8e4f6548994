// Config of a checkpoint: typed look-ups in config.json, with the changes of `hf_overrides`. The fields of a nested text model take
// precedence over those of the whole model. All returned values are in range, so callers need no checks.
import { ServerError } from "../../../runtime/errors.ts";
import { describeValue, quote } from "../gguf/invalid-file.ts";

export type JsonObject = Readonly<Record<string, unknown>>;

/** Fields of config.json that hold the nested config of the text model. */
const textFields = ["text_config", "llm_config", "language_config"];
const maxCount = 2 ** 31 - 1;
const maxLayers = 1000;
const maxHeadLength = 65_536;

export class Config {
  /** Path of config.json. */
  readonly path: string;
  readonly #fields: JsonObject;
  readonly #defaults: JsonObject;

  /** `whole`: content of config.json with all changes; `defaults`: values of fields that it leaves out. */
  constructor(path: string, whole: JsonObject, defaults: JsonObject = {}) {
    this.path = path;
    this.#fields = flattened(whole);
    this.#defaults = defaults;
  }

  withDefaults(defaults: JsonObject): Config {
    return new Config(this.path, this.#fields, defaults);
  }

  /** Returns a copy of the config in which `fields` replace the fields of the same names. */
  withFields(fields: JsonObject): Config {
    return new Config(this.path, { ...this.#fields, ...fields }, this.#defaults);
  }

  /** Returns the value of the first of these fields that is present and not null. */
  value(...names: readonly string[]): unknown {
    return this.#find(this.#fields, names) ?? this.#find(this.#defaults, names);
  }

  #find(fields: JsonObject, names: readonly string[]): unknown {
    const name = names.find((one) => Object.hasOwn(fields, one) && fields[one] !== null);
    return name === undefined ? undefined : fields[name];
  }

  /** Returns an integer of 1 or more. Throws if the field is absent or has another value. */
  count(...names: readonly string[]): number {
    return this.#count(this.value(...names), 1, names);
  }

  /** Like count(), but accepts 0, and returns `fallback` for an absent field. */
  countOr<Fallback>(fallback: Fallback, ...names: readonly string[]): number | Fallback {
    const value = this.value(...names);
    return value === undefined ? fallback : this.#count(value, 0, names);
  }

  number(...names: readonly string[]): number {
    const value = this.value(...names);
    if (typeof value === "number" && Number.isFinite(value)) return value;
    throw this.invalid(names[0] as string, value, "a number");
  }

  numberOr<Fallback>(fallback: Fallback, ...names: readonly string[]): number | Fallback {
    return this.value(...names) === undefined ? fallback : this.number(...names);
  }

  truth(fallback: boolean, ...names: readonly string[]): boolean {
    const value = this.value(...names) ?? fallback;
    if (typeof value === "boolean") return value;
    throw this.invalid(names[0] as string, value, "true or false");
  }

  text(name: string): string | undefined {
    const value = this.value(name);
    if (value === undefined || typeof value === "string") return value;
    throw this.invalid(name, value, "a text");
  }

  object(...names: readonly string[]): JsonObject | undefined {
    const value = this.value(...names);
    if (value === undefined || isObject(value)) return value;
    throw this.invalid(names[0] as string, value, "an object");
  }

  /** Returns a list of numbers; undefined if the field is absent. Throws if the list does not have `length` elements, if given. */
  numbers(name: string, length?: number): readonly number[] | undefined {
    const value = this.value(name);
    if (value === undefined) return undefined;
    const isFitting = Array.isArray(value) && value.length <= maxLayers * 100 && value.every(Number.isFinite);
    if (isFitting && (length === undefined || value.length === length)) return value;
    throw this.invalid(name, value, length === undefined ? "a list of numbers" : `a list of ${length} numbers`);
  }

  /** Returns a list of `length` integers of 1 or more. */
  counts(name: string, length: number): readonly number[] {
    const values = this.numbers(name, length) ?? [];
    for (const value of values) this.#count(value, 1, [name]);
    return values;
  }

  /** Returns a list with one string per layer; undefined if the field is absent. */
  layerTexts(name: string, layers: number): readonly string[] | undefined {
    const value = this.value(name);
    if (value === undefined) return undefined;
    const isFitting = Array.isArray(value) && value.every((one) => typeof one === "string");
    if (isFitting && value.length === layers) return value;
    throw this.invalid(name, value, `a list of ${layers} texts, one for each layer`);
  }

  get layers(): number {
    const layers = this.count("num_hidden_layers", "n_layers", "n_layer", "num_layers");
    if (layers <= maxLayers) return layers;
    throw this.invalid("num_hidden_layers", layers, `at most ${maxLayers}`);
  }

  get width(): number {
    return this.count("hidden_size", "n_embd", "dim");
  }

  get heads(): number {
    return this.count("num_attention_heads", "n_head", "n_heads");
  }

  get kvHeads(): number {
    return this.countOr(this.heads, "num_key_value_heads", "n_kv_heads") || this.heads;
  }

  get headLength(): number {
    const length = this.value("head_dim") === undefined ? this.width / this.heads : this.count("head_dim");
    if (length > maxHeadLength) throw this.invalid("head_dim", length, `at most ${maxHeadLength}`);
    if (Number.isInteger(length)) return length;
    throw this.invalid("num_attention_heads", this.heads, `a divisor of the hidden_size ${this.width}`);
  }

  /** Returns the error for a field whose value cannot be used. */
  invalid(name: string, value: unknown, expected: string): ServerError {
    return new ServerError(
      "model_file_invalid",
      `${this.path} has ${quote(name)}: ${describeField(value)}; expected ${expected}: fetch the model again, or set ` +
        "the field with hf_overrides",
    );
  }

  /** Returns the error for a valid value that no engine supports. */
  unsupported(name: string, value: unknown, known: string): ServerError {
    return new ServerError(
      "unsupported",
      `${this.path} has ${quote(name)}: ${describeField(value)}, which the engines do not compute; they compute ` +
        `${known}: use another model`,
      { param: name },
    );
  }

  /** Throws if the field is present with another value. */
  mustBe(name: string, expected: string | number | boolean): void {
    const value = this.value(name) ?? expected;
    if (value !== expected) throw this.unsupported(name, value, String(expected));
  }

  #count(value: unknown, least: number, names: readonly string[]): number {
    if (typeof value === "number" && Number.isInteger(value) && value >= least && value <= maxCount) return value;
    throw this.invalid(names[0] as string, value, `a whole number from ${least} to ${maxCount}`);
  }
}

/** Merges `changes` into a copy of `base`. Nested objects are merged, too; a null in `changes` is a value like any other. */
export function merged(base: JsonObject, changes: JsonObject): JsonObject {
  const result: Record<string, unknown> = Object.create(null);
  for (const [key, value] of [...Object.entries(base), ...Object.entries(changes)]) {
    const before = result[key];
    result[key] = isObject(before) && isObject(value) ? merged(before, value) : value;
  }
  return result;
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function flattened(whole: JsonObject): JsonObject {
  const text = textFields.map((name) => whole[name]).find(isObject);
  return text === undefined ? whole : { ...whole, ...text };
}

function describeField(value: unknown): string {
  return isObject(value) ? "an object" : describeValue(value ?? undefined);
}
