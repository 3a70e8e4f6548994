// JSON field: a value of a JSON file with the names of the file and the field. Typed look-ups return null for an absent
// field, and throw `model_file_invalid` with these names for a value of the wrong type.
import { ServerError } from "../../runtime/errors.ts";
import { describeValue, quote } from "./gguf/invalid-file.ts";

/** Maximum length of a key in the name of a field. */
const maxName = 64;

export type JsonRecord = Readonly<Record<string, unknown>>;

export class JsonField {
  /** Path of the file. */
  readonly file: string;
  /** Path to the field, such as "model.vocab"; "" for the whole file. */
  readonly name: string;
  readonly value: unknown;

  constructor(file: string, name: string, value: unknown) {
    this.file = file;
    this.name = name;
    this.value = value;
  }

  /** True if the field is missing or null. */
  get isAbsent(): boolean {
    return this.value === undefined || this.value === null;
  }

  /** Returns a field of this object; absent if this field is not an object. */
  get(key: string): JsonField {
    const value = isRecord(this.value) && Object.hasOwn(this.value, key) ? this.value[key] : undefined;
    const shown = key.length > maxName ? `${key.slice(0, maxName)}…` : key;
    return new JsonField(this.file, this.name === "" ? shown : `${this.name}.${shown}`, value);
  }

  /** Returns a field with another value but the same name in errors. Used to check the key of a field like a value. */
  with(value: unknown): JsonField {
    return new JsonField(this.file, this.name, value);
  }

  text(): string | null {
    return this.#typed((value) => typeof value === "string", "a text") as string | null;
  }

  flag(): boolean | null {
    return this.#typed((value) => typeof value === "boolean", "true or false") as boolean | null;
  }

  number(): number | null {
    return this.#typed((value) => typeof value === "number" && Number.isFinite(value), "a number") as number | null;
  }

  /** Returns a whole number from 0 to `most`. */
  count(most: number): number | null {
    const fits = (value: unknown) => Number.isInteger(value) && (value as number) >= 0 && (value as number) <= most;
    return this.#typed(fits, `a whole number from 0 to ${most}`) as number | null;
  }

  record(): JsonRecord | null {
    return this.#typed(isRecord, "an object") as JsonRecord | null;
  }

  list(): readonly unknown[] | null {
    return this.#typed(Array.isArray, "a list") as readonly unknown[] | null;
  }

  /** Returns the elements of a list of at most `most` as fields; none if the list is absent. */
  elements(most: number): JsonField[] {
    const list = this.list() ?? [];
    if (list.length > most) throw this.invalid(`has ${list.length} elements; at most ${most} are read`);
    return list.map((value, index) => new JsonField(this.file, `${this.name}[${index}]`, value));
  }

  required<T>(value: T | null): T {
    if (value !== null) return value;
    throw this.invalid("is missing");
  }

  invalid(problem: string): ServerError {
    const field = this.name === "" ? "its content" : this.name;
    return new ServerError("model_file_invalid", `${this.file}: ${field} ${problem}`);
  }

  #typed(fits: (value: unknown) => boolean, expected: string): unknown {
    if (this.isAbsent) return null;
    if (fits(this.value)) return this.value;
    throw this.invalid(`is ${described(this.value)}; expected ${expected}`);
  }
}

/** Describes a value for an error, shortened. */
function described(value: unknown): string {
  return isRecord(value) ? `an object of ${Object.keys(value).length}` : describeValue(value);
}

/** Quotes a name from a file for an error, shortened. */
export const quoted = quote;

export function isRecord(value: unknown): value is JsonRecord {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
