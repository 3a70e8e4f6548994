// Settings helper for tests: resolves a request with defaults for all fields that a test does not set.
import assert from "node:assert/strict";
import { type Config, type ConfigRequest, resolveConfig } from "../../../../cli/config/config.ts";
import type { Command } from "../../../../cli/config/key.ts";
import { parseToml } from "../../../../cli/config/toml.ts";

type Request = Partial<ConfigRequest> & { readonly text?: string };

export const oneModel = '\n[[models]]\nmodel_id = "a"\n';

export function resolve({ text, ...others }: Request): Config {
  const file = text === undefined ? {} : { file: parseToml(text, "troupe.toml") };
  return resolveConfig({
    command: "serve",
    flags: {},
    environment: {},
    defaultModel: "the-default",
    ...file,
    ...others,
  });
}

/**
 * Returns a configuration file with one model and with `lines` under a header. `lines` begins at line 3 of the file,
 * or at line 5 if the header begins with "[models.".
 */
export function textWith(header: string, lines: string, command: Command = "serve"): string {
  if (header === "[[models]]") return `command = "${command}"\n[[models]]\n${lines}\nmodel_id = "a"\n`;
  if (header.startsWith("[models.")) return `command = "${command}"${oneModel}${header}\n${lines}\n`;
  return `command = "${command}"\n${header}\n${lines}${oneModel}`;
}

export function assertRefused(request: Request, message: string | RegExp): void {
  assert.throws(() => resolve(request), { name: "ServerError", code: "config_invalid", message });
}
