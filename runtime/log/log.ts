// Logger: one pino logger for each thread or process. Only complete lines are written to stderr, so that lines of several
// threads and child processes do not mix. The format is text for terminals and JSON for machines. In every line, secrets are
// removed and long texts are cut.
import { isatty } from "node:tty";
import pino from "pino";
import { prettyFactory } from "pino-pretty";
import { onLostLines, writeStderr } from "./stderr.ts";

export type Logger = pino.Logger;
export type LogLevel = "trace" | "debug" | "info" | "warn" | "error" | "fatal" | "silent";

export interface LogOptions {
  readonly level: LogLevel;
  readonly format: "text" | "json";
  /** Name that is added to each line, to show which thread or process wrote it. */
  readonly place?: string;
}

/** Destination of lines. It is stderr, except in tests. */
export interface LogDestination {
  write(line: string): void;
}

const stderr = 2;
/** Maximum number of characters of one text in a line. A limit is needed, because a client may send a path of any length. */
export const maxTextLength = 2000;
const maxStackLength = 8000;
const secretKeys = [
  ...["authorization", "x-api-key", "apiKey", "api_key", "token", "tokenSource", "password", "secret"],
  ...["access_token", "refresh_token", "client_secret"],
];

/** Creates the logger of this thread or process. Called once in each; `logger.child({ … })` creates further loggers. */
export function createLogger(options: LogOptions, destination?: LogDestination): Logger {
  if (destination !== undefined) return loggerTo(destination, options);
  const logger = loggerTo({ write: writeStderr }, options);
  onLostLines((lost) => {
    logger.warn({ lost }, "log lines were lost: stderr was not read, and its buffer was full");
  });
  return logger;
}

function loggerTo(destination: LogDestination, options: LogOptions): Logger {
  const settings: pino.LoggerOptions = {
    level: options.level,
    base: options.place === undefined ? null : { place: options.place },
    redact: { paths: secretKeys.flatMap(pathsOf), censor: "[redacted]" },
    formatters: { log: cutFields },
    serializers: { err: cutError },
    hooks: {
      logMethod(args, method) {
        const [first, second] = args;
        if (typeof first === "string") args[0] = cut(first);
        else if (typeof second === "string") args[1] = cut(second);
        method.apply(this, args);
      },
    },
  };
  if (options.format === "json") return pino(settings, destination);
  const toText = textFormatter();
  return pino(settings, { write: (line: string) => destination.write(toText(line)) });
}

/**
 * Returns the fields of a line. Shortens long texts, also in nested values. The fields are copied only if a text is
 * shortened.
 */
function cutFields(fields: Record<string, unknown>, depth = 2): Record<string, unknown> {
  let cutOnes: Record<string, unknown> | null = null;
  for (const key in fields) {
    const value = fields[key];
    const shown = cutValue(value, depth);
    if (shown === value) continue;
    cutOnes ??= { ...fields };
    cutOnes[key] = shown;
  }
  return cutOnes ?? fields;
}

function cutValue(value: unknown, depth: number): unknown {
  if (typeof value === "string") return cut(value);
  if (typeof value !== "object" || value === null || value instanceof Error || depth === 0) return value;
  if (Array.isArray(value)) return value.map((item) => cutValue(item, depth - 1));
  return cutFields(value as Record<string, unknown>, depth - 1);
}

function cut(text: string, limit = maxTextLength): string {
  return text.length <= limit ? text : `${text.slice(0, limit)}… (${text.length - limit} more characters)`;
}

function cutError(error: Error): object {
  const { stack = "", ...fields } = pino.stdSerializers.err(error);
  return { ...cutFields(fields), stack: cut(stack, maxStackLength) };
}

/**
 * Returns the paths at which a key is redacted: at the top level, and one and two levels down. Headers, and requests with
 * headers, are at these levels.
 */
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

/** Writes a field as key=value. Returns an empty list for fields that the line shows elsewhere. */
function toPair([key, value]: [string, unknown]): string[] {
  if (key === "level" || key === "time" || key === "msg" || (key === "err" && stackOf(value) !== "")) return [];
  const isPlainWord = typeof value !== "object" && /^[^\s"=\p{C}]+$/u.test(String(value));
  return [`${key}=${isPlainWord ? value : JSON.stringify(value).replace(/\p{C}/gu, escaped)}`];
}

/** Escapes a control or invisible character. JSON itself escapes only some of the characters that a terminal interprets. */
function escaped(character: string): string {
  const units = Array.from({ length: character.length }, (_, i) => character.charCodeAt(i));
  return units.map((unit) => `\\u${unit.toString(16).padStart(4, "0")}`).join("");
}

/** Returns the stack of an error, which is written on the lines after the message. */
function stackOf(error: unknown): string {
  return typeof error === "object" && error !== null && "stack" in error ? `\n${error.stack}` : "";
}
