// History of typed lines, kept in a file between runs. Errors of reading and writing are ignored, because a conversation must
// not end if its history cannot be saved.
import { appendFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, isAbsolute, join } from "node:path";
import { homeFolder } from "../../../runtime/host/home.ts";

/** Maximum number of lines. When the file has twice this number of lines, it is cut to this number. */
export const historyLimit = 1000;
const maxLineLength = 4096;
const ownerOnly = 0o600;

/** Returns the path of the history file by the XDG rules, which ignore a relative XDG_STATE_HOME. */
export function historyPath(environment: Readonly<Record<string, string | undefined>>): string {
  const given = environment.XDG_STATE_HOME ?? "";
  return join(isAbsolute(given) ? given : join(homeFolder(), ".local", "state"), "troupe", "run-history");
}

export class LineHistory {
  readonly #path: string;
  /** Lines from the newest to the oldest, as readline expects. */
  #lines: string[];

  constructor(path: string) {
    this.#path = path;
    const stored = readLines(path);
    const kept = stored.slice(-historyLimit);
    if (stored.length > 2 * historyLimit) quietly(() => writeFileSync(path, toText(kept), { mode: ownerOnly }));
    this.#lines = kept.reverse();
  }

  get lines(): readonly string[] {
    return this.#lines;
  }

  /** Adds a line, unless it repeats the previous one. */
  add(line: string): void {
    if (line === this.#lines[0] || line.length > maxLineLength || line.trim() === "") return;
    this.#lines = [line, ...this.#lines.slice(0, historyLimit - 1)];
    quietly(() => {
      mkdirSync(dirname(this.#path), { recursive: true, mode: 0o700 });
      appendFileSync(this.#path, toText([line]), { mode: ownerOnly });
    });
  }
}

function readLines(path: string): string[] {
  const text = quietly(() => readFileSync(path, "utf8")) ?? "";
  return text.split("\n").filter((line) => line !== "");
}

function toText(lines: readonly string[]): string {
  return lines.map((line) => `${line}\n`).join("");
}

function quietly<T>(action: () => T): T | null {
  try {
    return action();
  } catch {
    return null;
  }
}
