// Reader of TOML configuration files: checks the syntax and finds the line of each key. It interprets only the key `command`;
// config.ts interprets all other keys.
import { parse, TomlError } from "smol-toml";
import { ServerError } from "../../runtime/errors.ts";
import { keyEntries } from "./keys.ts";
import { withoutTokens } from "./kinds.ts";

export type TomlTable = Readonly<Record<string, unknown>>;

export interface TomlFile {
  readonly path: string;
  readonly text: string;
  readonly tree: TomlTable;
  readonly command: "serve" | "run";
}

/** Parses the text of the file at `path`. Throws config_invalid that names the line. */
export function parseToml(text: string, path: string): TomlFile {
  const tree = parseTree(text, path);
  const { command } = tree;
  if (command === "serve" || command === "run") return { path, text, tree, command };
  const place = `${path}:${lineOf(text, "command")}`;
  const came = command === undefined ? "none" : JSON.stringify(command);
  throw new ServerError("config_invalid", `${place}: command expects "serve" or "run"; got ${came}`);
}

function parseTree(text: string, path: string): TomlTable {
  try {
    return parse(text, { unsafeKeyBehaviour: "throw" });
  } catch (cause) {
    if (!(cause instanceof TomlError)) throw cause;
    const [problem = ""] = cause.message.split("\n");
    const message = `${path}:${cause.line}:${cause.column}: ${problem.replace("Invalid TOML document: ", "not TOML: ")}`;
    // The lines around the syntax error are not shown if the file may contain a key or a password.
    const lines = secretNames.test(text) ? "" : `\n\n${cause.codeblock.trimEnd()}`;
    throw new ServerError("config_invalid", withoutTokens(`${message}${lines}`));
  }
}

/** Names of the keys whose values are not shown, and a misspelt one. */
const secretNames = new RegExp(
  String.raw`\b(?:apikey|${keyEntries.flatMap(({ key, names }) => (key.secret ? names : [])).join("|")})\b`,
  "i",
);

export function isTable(value: unknown): value is TomlTable {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Date);
}

const bareOrQuoted = String.raw`(?:[\w-]+|"[^"]*"|'[^']*')`;
const dotted = String.raw`${bareOrQuoted}(?:\s*\.\s*${bareOrQuoted})*`;
const headerPattern = new RegExp(String.raw`^\s*(\[\[?)\s*(${dotted})\s*\]`);
const keyPattern = new RegExp(String.raw`^\s*(${dotted})\s*=`);

/**
 * Returns the line of the key or section at `path`, for example `models.format.mmproj`. For [[models]], `index` is the number
 * of the entry. For a key in an inline table, it is the line of the table.
 */
export function lineOf(text: string, path: string, index = 0): number {
  let section = "";
  let models = -1;
  let found = 1;
  let foundLength = 0;
  for (const [line, content] of text.split("\n").entries()) {
    const header = headerPattern.exec(content);
    if (header !== null) section = plainPath(header[2]);
    if (header?.[1] === "[[" && section === "models") models++;
    const key = header === null ? keyPattern.exec(content)?.[1] : undefined;
    if (header === null && key === undefined) continue;
    const here = [section, ...(key === undefined ? [] : [plainPath(key)])].filter((part) => part !== "").join(".");
    const isOther = section.split(".")[0] === "models" && models !== -1 && models !== index;
    const isOn = here === path || path.startsWith(`${here}.`);
    if (isOther || !isOn || here.length <= foundLength) continue;
    [found, foundLength] = [line + 1, here.length];
  }
  return found;
}

function plainPath(written = ""): string {
  return written.replaceAll(/[\s"']/g, "");
}
