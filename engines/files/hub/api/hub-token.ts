// Hub token: reads the token from the configured source, and stores the token of `troupe login`. Error messages contain
// neither the configured source nor the token, because the source may contain the token.
import { chmod, mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import { ServerError } from "../../../../runtime/errors.ts";
import type { Environment } from "../download/fetch-options.ts";
import { expandHome, tokenPath } from "./hub-locations.ts";

const expected =
  'token_source expects "literal:TOKEN", "env:VARIABLE", "path:FILE", "cache" (HF_TOKEN, or what login kept) or "none"';

/**
 * Returns the token to send; null if none is configured or stored. Throws `config_invalid` if the configured source has
 * no token.
 */
export async function readToken(source: string, environment: Environment): Promise<string | null> {
  const [, kind = source, detail] = /^(literal|env|path):(.*)$/s.exec(source) ?? [];
  switch (kind) {
    case "none":
      return null;
    case "cache":
      return await cachedToken(environment);
    case "literal":
      return checkToken(detail ?? "", "the token of token_source");
    case "env":
      if (!detail) throw invalid(`${expected}; got "env:" without a variable`);
      return checkToken(environment[detail] ?? "", `the variable ${detail} that token_source names`);
    case "path":
      if (!detail) throw invalid(`${expected}; got "path:" without a file`);
      return await tokenOfFile(expandHome(detail));
    default:
      throw invalid(`${expected}; got something else`);
  }
}

/** Stores a token in the file of the hub's Python library, readable by its owner only. Returns the path. */
export async function writeToken(token: string, environment: Environment): Promise<string> {
  const path = tokenPath(environment);
  const temporary = `${path}.${process.pid}.tmp`;
  try {
    await mkdir(dirname(path), { recursive: true });
    await writeFile(temporary, token, { mode: 0o600 });
    // writeFile applies its mode only to new files.
    await chmod(temporary, 0o600);
    await rename(temporary, path);
  } catch (cause) {
    throw invalid(`the token cannot be written to "${path}" (${codeOf(cause)}); set HF_HOME to a directory that can`);
  }
  return path;
}

/**
 * Returns the token without surrounding white space. Throws if it is not a token; `name` describes its source in the
 * error.
 */
export function checkToken(text: string, name: string): string {
  const token = text.trim();
  if (token === "") throw invalid(`${name} is empty or not set; give it a token, or use "cache" or "none"`);
  // Other characters are not allowed in a header, and the error message of fetch would contain the token.
  if (!/^[\x21-\x7e]+$/.test(token)) throw invalid(`${name} is not a token: it contains spaces or unusual characters`);
  return token;
}

async function cachedToken(environment: Environment): Promise<string | null> {
  for (const name of ["HF_TOKEN", "HF_HUB_TOKEN"]) {
    if (environment[name]?.trim()) return checkToken(environment[name], `the variable ${name}`);
  }
  const path = tokenPath(environment);
  const text = await readFile(path, "utf8").catch(() => "");
  return text.trim() === "" ? null : checkToken(text, `the token in "${path}"`);
}

async function tokenOfFile(path: string): Promise<string> {
  let text: string;
  try {
    text = await readFile(path, "utf8");
  } catch (cause) {
    throw invalid(`the file "${path}" that token_source names cannot be read (${codeOf(cause)})`);
  }
  return checkToken(text, `the file "${path}" that token_source names`);
}

function codeOf(cause: unknown): unknown {
  return cause instanceof Error && "code" in cause ? cause.code : "unknown";
}

function invalid(message: string): ServerError {
  return new ServerError("config_invalid", message, { param: "token_source" });
}
