// Kinds of configuration values. Each kind checks a value from a file, and reads the same value from the text of a flag or
// variable. Used only by the table of keys.
import { z } from "zod";
import { aliasFault, maxAliasBytes } from "../../actors/api/lora-alias.ts";
import { isAddressRange } from "../../http/server/access/trusted-proxies.ts";

const asIs = (text: string): unknown => text;
const asNumber = (text: string): unknown => (/^-?(?:\d+(?:\.\d+)?|\.\d+)$/.test(text) ? Number(text) : text);
const asBoolean = (text: string): unknown => (text === "true" ? true : text === "false" ? false : text);

export function integer(minimum: number, maximum = Number.MAX_SAFE_INTEGER) {
  const range = maximum === Number.MAX_SAFE_INTEGER ? `, at least ${minimum}` : ` from ${minimum} to ${maximum}`;
  return { type: z.int().min(minimum).max(maximum), expects: `a whole number${range}`, shows: "N", read: asNumber };
}

const countUnits: Readonly<Record<string, number>> = { k: 1000, m: 1000 ** 2, K: 1024, M: 1024 ** 2 };

/**
 * Returns the kind for a number of tokens. The text of a flag or variable may end in k or m (thousands, millions), or in K or M
 * (1024, 1024 x 1024).
 */
export function tokenCount(minimum: number, maximum?: number) {
  const { expects, ...kind } = integer(minimum, maximum);
  const read = (text: string): unknown => {
    const [, count, unit = ""] = /^(\d+(?:\.\d+)?)([kmKM])$/.exec(text) ?? [];
    return count === undefined ? asNumber(text) : Number(count) * (countUnits[unit] as number);
  };
  return { ...kind, expects: `${expects}, such as 8192 or 8K`, read };
}

export function multipleOf(step: number, minimum: number, maximum: number) {
  const type = z.int().min(minimum).max(maximum).multipleOf(step);
  return { type, expects: `a multiple of ${step} from ${minimum} to ${maximum}`, shows: "N", read: asNumber };
}

/** Maximum delay of a Node.js timer in ms. A timer with a longer delay fires at once. */
const maxTimerMs = 2 ** 31 - 1;

export function milliseconds(minimum: number) {
  return integer(minimum, maxTimerMs);
}

export function seconds(minimum: number) {
  return integer(minimum, Math.floor(maxTimerMs / 1000));
}

export function numberAbove(minimum: number) {
  return { type: z.number().gt(minimum), expects: `a number above ${minimum}`, shows: "X", read: asNumber };
}

export function numberFrom(minimum: number, maximum: number) {
  const expects = `a number from ${minimum} to ${maximum}`;
  return { type: z.number().min(minimum).max(maximum), expects, shows: "X", read: asNumber };
}

export function numberAboveTo(minimum: number, maximum: number) {
  const expects = `a number above ${minimum} and at most ${maximum}`;
  return { type: z.number().gt(minimum).max(maximum), expects, shows: "X", read: asNumber };
}

export const fraction = numberAboveTo(0, 1);

/** Switch that is off by default; the flag takes no value. */
export const flagSwitch = { type: z.boolean(), expects: "true or false", shows: null, read: asBoolean };

/** Switch in an environment variable. In addition to `true` and `false`, texts such as `1`, `yes` and `On` are accepted. */
export const environmentSwitch = {
  type: z.boolean(),
  expects: "one of 1, true, yes, on, 0, false, no, off",
  shows: "1|0",
  read: (text: string): unknown => {
    const word = text.trim().toLowerCase();
    if (["1", "true", "yes", "on"].includes(word)) return true;
    return ["0", "false", "no", "off"].includes(word) ? false : text;
  },
};

/** Switch whose flag may be followed by `true` or `false`; without a value it is `true`. */
export const boolean = { ...flagSwitch, shows: "true|false", alone: "true" };

export function text(expects: string, shows: string) {
  return { type: z.string().min(1), expects, shows, read: asIs };
}

export const file = text("a path of a file", "FILE");

export const httpUrl = {
  type: z.url({ protocol: /^https?$/ }),
  expects: "a URL of http or https",
  shows: "URL",
  read: asIs,
};

const serverUrl = z.url({ protocol: /^https?$/ }).refine((given) => {
  const { username, password, search, hash } = new URL(given);
  return `${username}${password}${search}${hash}` === "";
});

/** Address of a server, or a list of addresses in a file. An address must not contain an API key. */
export const serverUrls = {
  type: z.union([serverUrl, z.array(serverUrl).min(1).readonly()]),
  expects: "a URL of http or https without a user name, a password and a query, such as http://10.0.0.5:8000",
  shows: "URL",
  read: asIs,
};

export const folder = text("a folder", "DIR");

const origin = z.string().regex(/^[a-z][a-z0-9+.-]*:\/\/[^/?#\s]+$/);

/** One web origin as browsers send it, or a list of origins in a file. */
export const origins = {
  type: z.union([origin, z.array(origin).min(1).readonly()]),
  expects: "an origin in lower case without a path, such as https://chat.example",
  shows: "ORIGIN",
  read: asIs,
};

const addressRange = z.string().refine(isAddressRange);

/** One IP address or range of addresses, or a list of them in a file. */
export const addressRanges = {
  type: z.union([addressRange, z.array(addressRange).min(1).readonly()]),
  expects: "an IP address or a range in CIDR notation such as 192.0.2.8/30",
  shows: "RANGE",
  read: asIs,
};

const apiKey = z.string().regex(/^[\x21-\x7e]{1,512}$/);

/** Returns whether a text can be an API key. It must be valid in a header, in which clients send it. */
export function isApiKey(given: string): boolean {
  return apiKey.safeParse(given).success;
}

/** One API key, or a list of keys in a file. */
export const apiKeys = {
  type: z.union([apiKey, z.array(apiKey).min(1).readonly()]),
  expects: "a key of 1 to 512 printable ASCII characters without spaces",
  shows: "KEY",
  read: asIs,
};

/** Returns the kind for one text, or a list of texts in a file. */
export function texts(expects: string, shows: string) {
  const type = z.union([z.string().min(1), z.array(z.string().min(1)).min(1).readonly()]);
  return { type, expects, shows, read: asIs };
}

/** Returns the kind for a text or an integer, for example `q4k` or `4`. */
export function textOrInteger(expects: string, shows: string) {
  return { type: z.union([z.string().min(1), z.int().min(1)]), expects, shows, read: asNumber };
}

/** Returns the kind for one of the given words. `synonyms` maps other spellings to these words. */
export function oneOf<const T extends string>(values: readonly T[], synonyms: Readonly<Record<string, T>> = {}) {
  // A boolean in a file becomes text: `isolate = true` means the same as `isolate = "true"`.
  const toText = (value: unknown) => (typeof value === "boolean" ? String(value) : value);
  const spelled = (value: unknown) =>
    typeof value === "string" && Object.hasOwn(synonyms, value) ? synonyms[value] : value;
  const type = z.preprocess((value) => spelled(toText(value)), z.enum(values));
  return { type, expects: `one of ${values.join(", ")}`, shows: values.join("|"), read: asIs };
}

/** Returns the kind for a list of integers separated by commas, for example `512,1024`. */
export function integers(minimum: number) {
  const list = z.preprocess(
    (value) => (typeof value === "string" ? value.split(",").map((part) => asNumber(part.trim())) : value),
    z.array(z.int().min(minimum)).min(1).readonly(),
  );
  return { type: list, expects: `whole numbers, at least ${minimum}, separated by commas`, shows: "N,…", read: asIs };
}

function readJson(given: string): unknown {
  try {
    return JSON.parse(given);
  } catch {
    return given;
  }
}

/** JSON object: a table in a file, or JSON text in a flag. */
export const jsonObject = {
  type: z.record(z.string(), z.unknown()),
  expects: "a JSON object",
  shows: "JSON",
  read: readJson,
};

/** Table that maps names to texts. */
export const textTable = {
  ...jsonObject,
  type: z.record(z.string().min(1), z.string()),
  expects: "a JSON object of texts",
};

/** Name of a model in requests. "default" is reserved for the default model, and "::" separates a model from its adapter. */
export const modelAlias = {
  type: z.string().regex(/^(?!default$)(?!.*::)[\x21-\x7e]{1,200}$/),
  expects: 'a name of 1 to 200 printable ASCII characters without spaces and "::", and not "default"',
  shows: "NAME",
  read: asIs,
};

const alias = z
  .string()
  .trim()
  .refine((given) => aliasFault(given) === null);

const adapter = z.strictObject({
  alias,
  source: z.string().trim().min(1),
  revision: z.string().min(1).default("main"),
});

/** LoRA adapter to load at start. */
export type LoraEntry = Readonly<z.infer<typeof adapter>>;

/** Reads `ALIAS=SOURCE`, or a JSON object whose fields may also be called name and path. */
function readAdapter(given: string): unknown {
  const [, alias, source] = /^([^={[]+)=(.+)$/s.exec(given) ?? [];
  if (alias !== undefined) return { alias, source };
  const read = readJson(given);
  if (typeof read !== "object" || read === null || !("name" in read && "path" in read)) return read;
  const { name, path, ...others } = read;
  return { alias: name, source: path, ...others };
}

export const adapters = {
  type: z.array(adapter).readonly(),
  expects: `entries of a printable alias of 1 to ${maxAliasBytes} bytes, a nonempty source and an optional revision`,
  shows: "ALIAS=SOURCE|JSON",
  read: readAdapter,
};

export const tokenSource = {
  type: z.string().regex(/^(?:(?:literal|env|path):.+|cache|none)$/),
  expects: "one of literal:TOKEN, env:VARIABLE, path:FILE, cache, none",
  shows: "SOURCE",
  read: asIs,
};

/** Removes access tokens from a text, because a user may have typed one in the wrong place. */
export function withoutTokens(given: string): string {
  return given.replaceAll(/literal:[^\s"',\]}]+/g, "literal:…");
}

const levels = ["silent", "error", "warn", "info", "debug", "trace"] as const;

/** Reads a log level, or directives as in RUST_LOG. In `warn,troupe=debug` the directive for troupe is used. */
function readLogLevel(given: string): unknown {
  const levelOf = new Map<string, string>();
  for (const directive of given.toLowerCase().split(",")) {
    const [, target = "", level = ""] = /^\s*(?:(troupe)\s*=)?\s*([a-z]+)\s*$/.exec(directive) ?? [];
    if (level === "") return given;
    levelOf.set(target, level);
  }
  return levelOf.get("troupe") ?? levelOf.get("");
}

export const logLevel = {
  ...oneOf(levels, { off: "silent" }),
  expects: `one of ${levels.join(", ")}, or troupe=LEVEL`,
  read: readLogLevel,
};
