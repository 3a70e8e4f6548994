// Header of a projector file: reads the keys of its image encoder or audio encoder. Errors name the invalid key.
import { ServerError } from "../../../runtime/errors.ts";
import type { GgufValue } from "../gguf/cursor.ts";
import { describeValue } from "../gguf/invalid-file.ts";

export class ProjectorHeader {
  protected readonly path: string;
  protected readonly fields: ReadonlyMap<string, GgufValue>;
  readonly #prefix: string;

  constructor(path: string, fields: ReadonlyMap<string, GgufValue>, media: "vision" | "audio") {
    this.path = path;
    this.fields = fields;
    this.#prefix = `clip.${media}.`;
  }

  /** Returns a whole number from 1 to `most`. `fallback`: value of an absent key. Throws `model_file_invalid`. */
  count(key: string, most: number, fallback?: number): number {
    const value = this.value(key) ?? fallback;
    if (typeof value === "number" && Number.isInteger(value) && value >= 1 && value <= most) return value;
    throw this.invalidKey(key, `a whole number from 1 to ${most}`);
  }

  /** Like count(), but returns 0 if the key is 0 or absent. */
  countOrNone(key: string, most: number): number {
    return (this.value(key) ?? 0) === 0 ? 0 : this.count(key, most);
  }

  /** Returns a number above 0 and below 1. Throws `model_file_invalid`. */
  positive(key: string): number {
    const value = this.value(key);
    if (typeof value === "number" && value > 0 && value < 1) return value;
    throw this.invalidKey(key, "a number above 0 and below 1");
  }

  invalid(problem: string): ServerError {
    return new ServerError("model_file_invalid", `projector file ${this.path}: ${problem}`, { param: "mmproj" });
  }

  protected value(key: string): GgufValue | undefined {
    return this.fields.get(this.#prefix + key);
  }

  protected invalidKey(key: string, expected: string): ServerError {
    return this.invalid(`its ${this.#prefix}${key} is ${describeValue(this.value(key))}; expected ${expected}`);
  }
}
