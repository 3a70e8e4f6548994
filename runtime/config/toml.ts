// Owns reading a TOML configuration file: syntax, and at which line a key stands. It knows no key but `command`; what the
// keys mean is resolve.ts's work. Called by cli/ with the text of the file.
import { parse, TomlError } from "smol-toml";
import { ServerError } from "../errors.ts";

export type TomlTable = Readonly<Record<string, unknown>>;

export interface TomlFile {
  readonly path: string;
  readonly text: string;
  readonly tree: TomlTable;
  readonly command: "serve" | "run";
}

/** Parses the text of the file at `path`. Throws config_invalid naming the line. */
export function parseToml(text: string, path: string): TomlFile {
  const tree = parseTree(text, path);
  const { command } = tree;
  if (command === "serve" || command === "run") return { path, text, tree, command };
  const place = `${path}:${lineOf(text, "", 0, "command")}`;
  const came = command === undefined ? "nothing" : JSON.stringify(command);
  throw new ServerError("config_invalid", `${place}: command expects "serve" or "run"; got ${came}`);
}

function parseTree(text: string, path: string): TomlTable {
  try {
    return parse(text, { unsafeKeyBehaviour: "throw" });
  } catch (cause) {
    if (!(cause instanceof TomlError)) throw cause;
    const [problem = ""] = cause.message.split("\n");
    const message = `${path}:${cause.line}:${cause.column}: ${problem.replace("Invalid TOML document: ", "not TOML: ")}`;
    throw new ServerError("config_invalid", `${message}\n\n${cause.codeblock.trimEnd()}`, { cause });
  }
}

export function isTable(value: unknown): value is TomlTable {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Date);
}

/**
 * Line of `key` in `section` (the `index`th of its name, for arrays of tables), or of the section where the key is
 * written in another way, such as inside an inline table.
 */
export function lineOf(text: string, section: string, index: number, key: string): number {
  const [outer = ""] = section.split(".");
  let current = "";
  let arrays = -1;
  let found = 1;
  for (const [line, content] of text.split("\n").entries()) {
    const header = /^\s*(\[\[?)\s*([\w.\s"'-]+?)\s*\]/.exec(content);
    if (header !== null) {
      current = (header[2] ?? "").replaceAll(/[\s"']/g, "");
      if (header[1] === "[[" && current === outer) arrays++;
    }
    const name = /^\s*["']?([\w-]+)["']?\s*[=.]/.exec(content)?.[1];
    const isHere = current === section && (arrays === -1 || arrays === index || outer !== "models");
    if (isHere && header === null && name === key) return line + 1;
    if ((isHere && header !== null) || (current === "" && name === outer)) found = line + 1;
  }
  return found;
}
