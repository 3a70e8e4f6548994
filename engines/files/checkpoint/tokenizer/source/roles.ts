// Roles of special tokens (begin, end, padding ...) and the texts that a folder's files give them.
import type { JsonField } from "../../../json-field.ts";

export const roles = ["bos", "eos", "unk", "sep", "pad", "cls", "mask"] as const;
export type Role = (typeof roles)[number];

/** Returns the texts of the special tokens by role. If several files name a role, the first file is used. */
export function roleNames(...files: readonly (JsonField | null)[]): Map<string, string> {
  const names = new Map<string, string>();
  for (const role of roles) {
    for (const file of files) {
      const text = file === null ? null : textOf(file.get(`${role}_token`));
      if (text === null || text === "" || names.has(role)) continue;
      names.set(role, text);
    }
  }
  return names;
}

/** Returns the text of a token, which is written as a string or as an object with the string. */
function textOf(field: JsonField): string | null {
  return field.get("content").isAbsent ? field.text() : field.get("content").text();
}
