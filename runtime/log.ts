// Owns logging: one pino logger a place, whole lines written at once to stderr, so that lines of threads and children do not
// mix. Text for a person at a terminal, JSON for machines. Secrets are struck out here, whoever logs them.
import { isatty } from "node:tty";
import pino from "pino";
import { prettyFactory } from "pino-pretty";

export type Logger = pino.Logger;
export type LogLevel = "trace" | "debug" | "info" | "warn" | "error" | "fatal" | "silent";

export interface LogOptions {
  readonly level: LogLevel;
  readonly format: "text" | "json";
  /** Put on each line, to tell places apart. */
  readonly place?: string;
}

/** Where lines go; stderr unless a test listens. */
export interface LogDestination {
  write(line: string): void;
}

const stderr = 2;
const secretKeys = [
  ...["authorization", "x-api-key", "apiKey", "api_key", "token", "tokenSource", "password", "secret"],
  ...["access_token", "refresh_token", "client_secret"],
];

/** A logger for this place. Call it once a place and use `logger.child({ … })` below. */
export function createLogger(options: LogOptions, destination: LogDestination = stderrLines()): Logger {
  const settings: pino.LoggerOptions = {
    level: options.level,
    base: options.place === undefined ? null : { place: options.place },
    redact: { paths: secretKeys.flatMap(pathsOf), censor: "[redacted]" },
  };
  if (options.format === "json") return pino(settings, destination);
  const toText = textFormatter();
  return pino(settings, { write: (line: string) => destination.write(toText(line)) });
}

/** Written synchronously: what was logged before a crash is there after it. */
function stderrLines(): LogDestination {
  return pino.destination({ dest: stderr, sync: true });
}

/** The key at the top, and one and two levels down: headers, and requests that hold headers. */
function pathsOf(key: string): string[] {
  return [`["${key}"]`, `*["${key}"]`, `*.*["${key}"]`];
}

function textFormatter(): (line: string) => string {
  return prettyFactory({
    colorize: isatty(stderr) && process.env.NO_COLOR === undefined,
    translateTime: "SYS:HH:MM:ss.l",
    hideObject: true,
    messageFormat: (log, messageKey) => {
      const words = [log[messageKey] ?? [], Object.entries(log).flatMap(toPair)].flat();
      return words.join(" ") + stackOf(log.err);
    },
  });
}

/** key=value, except for what the line shows anyway. */
function toPair([key, value]: [string, unknown]): string[] {
  if (key === "level" || key === "time" || key === "msg" || (key === "err" && stackOf(value) !== "")) return [];
  const isPlainWord = typeof value !== "object" && /^[^\s"=\p{C}]+$/u.test(String(value));
  return [`${key}=${isPlainWord ? value : JSON.stringify(value).replace(/\p{C}/gu, escaped)}`];
}

/** JSON escapes only some of the characters that a terminal obeys or does not show. */
function escaped(character: string): string {
  const units = Array.from({ length: character.length }, (_, i) => character.charCodeAt(i));
  return units.map((unit) => `\\u${unit.toString(16).padStart(4, "0")}`).join("");
}

/** An error's stack, below the line. */
function stackOf(error: unknown): string {
  return typeof error === "object" && error !== null && "stack" in error ? `\n${error.stack}` : "";
}
