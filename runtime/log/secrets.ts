// Secret removal from logged JSON: removes the values of keys that are names of secrets. It works at any depth, also in JSON
// inside a string of other JSON (arguments of tool calls). Takes time linear in the text.

const REDACTED = "[redacted]";

const secretName =
  /^(?:(?:proxy-)?authorization|(?:set-)?cookie|tokensource|(?:(?!(?:bos|eos|pad|unk|stop)_).*[_-])?(?:token|secret|password|passphrase|passwd|api[_-]?key|(?:access|private|secret)[_-]?key))$/i;
const secretCamelName = /[a-z](?:Token|Secret|Password|Passphrase|ApiKey|AccessKey|PrivateKey)$/;

// In JSON inside a JSON string, each quote is preceded by backslashes, and white space may be written as \n, \r and \t.
const gap = String.raw`[\s\\nrt]*`;
const key = new RegExp(String.raw`(?<!\\)(\\*)"([\w-]{1,64})\1"${gap}:`, "g");
const keyPlace = new RegExp(`[{,]${gap}$`);
/** Number of characters examined before a quoted word, to determine whether the word is a key. */
const keyPlaceLength = 200;
const listStart = new RegExp(String.raw`${gap}\[`, "y");
const listNext = new RegExp(`${gap},`, "y");
const quote = new RegExp(`${gap}"`, "y");
const logprobNext = new RegExp(`${gap},${gap}"logprob`, "y");

/**
 * Returns a JSON text with its secrets replaced. The text may be incomplete JSON. A `token` field next to a `logprob` field is
 * a model's token, so it is kept.
 */
export function withoutSecrets(json: string): string {
  let kept = "";
  let keptTo = 0;
  key.lastIndex = 0;
  for (let found = key.exec(json); found !== null; found = key.exec(json)) {
    const [, before = "", name = ""] = found;
    if (!isSecret(name) || (before !== "" && !isKeyPlace(json, found.index))) continue;
    const listAt = endOf(listStart, json, key.lastIndex);
    let at: number | null = listAt ?? key.lastIndex;
    while (at !== null) {
      const value = stringAt(json, at, before.length);
      if (value === null || (name === "token" && endOf(logprobNext, json, value.next) !== null)) break;
      kept += json.slice(keptTo, value.start) + REDACTED + (value.isClosed ? "" : `${before}"`);
      keptTo = value.end;
      key.lastIndex = value.next;
      at = listAt === null ? null : endOf(listNext, json, value.next);
    }
  }
  return kept + json.slice(keptTo);
}

function isSecret(name: string): boolean {
  return secretName.test(name) || secretCamelName.test(name);
}

function isKeyPlace(json: string, at: number): boolean {
  return keyPlace.test(json.slice(Math.max(at - keyPlaceLength, 0), at));
}

/** Matches `form` at index `from`. Returns the index after the match; null if there is no match. */
function endOf(form: RegExp, json: string, from: number): number | null {
  form.lastIndex = from;
  return form.test(json) ? form.lastIndex : null;
}

interface Text {
  readonly start: number;
  readonly end: number;
  readonly next: number;
  /** True if the string has a closing quote. */
  readonly isClosed: boolean;
}

/**
 * Returns the JSON string that begins at `from`; null if there is none. `escapes` is the number of backslashes before each of
 * its quotes, because the string may be inside other strings. A quote after more than `escapes` backslashes ends the string
 * only if the extra backslashes escape each other. A quote after fewer backslashes ends the enclosing string.
 */
function stringAt(json: string, from: number, escapes: number): Text | null {
  const start = endOf(quote, json, from);
  if (start === null || backslashesBefore(json, start - 1, from) !== escapes) return null;
  for (let at = json.indexOf('"', start); at >= 0; at = json.indexOf('"', at + 1)) {
    const count = backslashesBefore(json, at, start);
    if (count < escapes) return { start, end: at - count, next: at - count, isClosed: false };
    if (count % (2 * (escapes + 1)) === escapes) {
      return { start, end: at - escapes, next: at + 1, isClosed: true };
    }
  }
  return { start, end: json.length, next: json.length, isClosed: false };
}

function backslashesBefore(json: string, at: number, from: number): number {
  let first = at;
  while (first > from && json[first - 1] === "\\") first--;
  return at - first;
}
