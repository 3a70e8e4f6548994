// Front matter of SKILL.md: the name and the description of a skill, as YAML between two `---` lines. It comes from clients, so
// its size and its number of aliases are limited, and YAML tags are not resolved.
import { isMap, parseDocument } from "yaml";
import { ServerError } from "../../../runtime/errors.ts";
import { invalidSkill, skillFileName } from "./skill-entries.ts";

export interface FrontMatter {
  readonly name: string;
  readonly description: string;
}

/** Number of bytes at the start of SKILL.md within which the front matter must end. */
export const maxFrontMatterBytes = 16 * 1024;
const MAX_ALIASES = 20;
const MAX_NAME_LENGTH = 64;
const MAX_DESCRIPTION_LENGTH = 1024;

/** Parses the front matter at the beginning of a file. Throws invalid_value with the line number of the error. */
export function frontMatterOf(head: Uint8Array): FrontMatter {
  const fields = fieldsOf(blockOf(textOf(head)));
  return { name: nameOf(fields.name), description: descriptionOf(fields.description) };
}

function textOf(head: Uint8Array): string {
  try {
    // `stream: true` drops a character that is cut at the end of `head`.
    return new TextDecoder("utf-8", { fatal: true }).decode(head, { stream: true });
  } catch {
    throw invalidSkill(`expected ${skillFileName} to be text in UTF-8`);
  }
}

function blockOf(text: string): string {
  const found = /^---[ \t]*\r?\n([\s\S]*?)\n---[ \t]*(?:\r?\n|$)/.exec(text);
  if (found?.[1] !== undefined) return found[1];
  throw invalidSkill(
    `expected ${skillFileName} to begin with front matter of at most ${maxFrontMatterBytes} bytes: a line "---", the keys name and description, and a line "---"`,
  );
}

function fieldsOf(block: string): Readonly<Record<string, unknown>> {
  let fields: unknown;
  try {
    const document = parseDocument(block, {
      schema: "core",
      customTags: [],
      merge: false,
      uniqueKeys: true,
      logLevel: "silent",
    });
    const [error] = document.errors;
    // Line 1 of the YAML block is line 2 of the file, after the line `---`.
    if (error !== undefined)
      throw invalidYaml(`line ${(error.linePos?.[0].line ?? 1) + 1}: ${firstLine(error.message)}`);
    fields = isMap(document.contents) ? document.toJS({ maxAliasCount: MAX_ALIASES }) : null;
  } catch (error) {
    // The parser throws if the nesting overflows its stack, or if there are too many aliases.
    throw error instanceof ServerError ? error : invalidYaml(firstLine(String(error)));
  }
  if (typeof fields === "object" && fields !== null) return fields as Record<string, unknown>;
  throw invalidYaml('expected keys and values, for example "name: my-skill"');
}

function nameOf(value: unknown): string {
  if (typeof value === "string" && value.length <= MAX_NAME_LENGTH && /^[a-z0-9]+(?:-[a-z0-9]+)*$/.test(value)) {
    return value;
  }
  throw invalidSkill(
    `expected name in the front matter of ${skillFileName}: at most ${MAX_NAME_LENGTH} lowercase letters, digits and single hyphens between them; got ${shownValue(value)}`,
  );
}

function descriptionOf(value: unknown): string {
  const text = typeof value === "string" ? value.trim() : "";
  const length = [...text].length;
  if (length > 0 && length <= MAX_DESCRIPTION_LENGTH) return text;
  const got = length > 0 ? `${length} characters` : shownValue(value);
  throw invalidSkill(
    `expected description in the front matter of ${skillFileName}: a text of 1 to ${MAX_DESCRIPTION_LENGTH} characters; got ${got}`,
  );
}

function invalidYaml(reason: string): ServerError {
  return invalidSkill(`expected YAML in the front matter of ${skillFileName}; ${reason}`);
}

function firstLine(message: string): string {
  return (message.split("\n")[0] ?? "").slice(0, 200);
}

function shownValue(value: unknown): string {
  return value === undefined ? "none" : (JSON.stringify(value) ?? String(value)).slice(0, 100);
}
