// Answer fields: the request fields that /set changes for the rest of a conversation. They have the names and limits of the
// HTTP API.
import { z } from "zod";
import { builtInDefaults, type GenerationDefaults } from "../../engines/sampling-defaults.ts";
import { validate } from "../../http/json.ts";
import { wireDefaults } from "../../http/shared/answer/wire-defaults.ts";
import { commonFields } from "../../http/shared/fields/fields.ts";
import { ServerError } from "../../runtime/errors.ts";
import { suggestion } from "../../runtime/nearest.ts";

const { temperature, top_k, top_p, min_p, repetition_penalty } = commonFields;
const { presence_penalty, frequency_penalty, max_tokens, seed } = commonFields;

const settable = z.strictObject({
  ...{ temperature, top_k, top_p, min_p, repetition_penalty },
  ...{ presence_penalty, frequency_penalty, max_tokens, seed },
});

export type AnswerFields = z.output<typeof settable>;

export const fieldNames = Object.keys(settable.shape) as readonly (keyof AnswerFields)[];

/**
 * Word that the user types in place of a value, such as `/set temperature default`. The model's default then applies again.
 */
export const unsetWord = "default";

/** Returns the fields with a new value. Throws invalid_value for an unknown name or a value out of range. */
export function withField(fields: AnswerFields, name: string, value: string): AnswerFields {
  const field = fieldNames.find((known) => known === name.replaceAll("-", "_"));
  if (field === undefined) {
    const found = suggestion(name, fieldNames) || `; /set sets ${fieldNames.join(", ")}`;
    throw new ServerError("invalid_value", `no setting "${name}"${found}`);
  }
  if (value === unsetWord) return { ...fields, [field]: undefined };
  const given = /^-?\d*\.?\d+$/.test(value) ? Number(value) : value;
  return { ...fields, ...validate(settable, { [field]: given }) };
}

/** Returns one line per field: its value, and whether it is set or the model's default. */
export function fieldLines(fields: AnswerFields, model: GenerationDefaults = builtInDefaults): readonly string[] {
  const { max_tokens, ...sampling } = wireDefaults(model);
  const defaults: Readonly<Record<keyof AnswerFields, number | string>> = {
    ...sampling,
    max_tokens: max_tokens ?? "the rest of the context",
    seed: "random",
  };
  return fieldNames.map((name) => {
    const value = fields[name] ?? null;
    return `${name.padEnd(20)}${value === null ? `${defaults[name]} (default)` : value}`;
  });
}
