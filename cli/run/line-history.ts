// Owns the lines a person has typed, kept in a file from one run to the next. What cannot be read or written is gone: a
// history is never worth a failure.
import { appendFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, isAbsolute, join } from "node:path";
import { homeFolder } from "../../runtime/host/home.ts";

/** Lines kept. The file may grow to twice as many before it is cut down to these. */
export const historyLimit = 1000;
const maxLineLength = 4096;
const ownerOnly = 0o600;

/** Where the history is by the XDG rules: a path that is not absolute counts as none. */
export function historyPath(environment: Readonly<Record<string, string | undefined>>): string {
  const given = environment.XDG_STATE_HOME ?? "";
  return join(isAbsolute(given) ? given : join(homeFolder(), ".local", "state"), "troupe", "run-history");
}

export class LineHistory {
  readonly #path: string;
  /** Newest first, as readline has them. */
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

  /** Remembers a line, unless it is the one before again. */
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
