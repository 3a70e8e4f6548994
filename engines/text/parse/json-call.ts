// JSON call: reads a call written as a JSON object with a tool's name, its arguments and sometimes an id. Used by all
// formats that write calls as JSON objects.
import type { Reading, Wait } from "./reading.ts";

const quote = 0x22;
const openBrace = 0x7b;
const closeBrace = 0x7d;
const openBracket = 0x5b;
const colon = 0x3a;
const comma = 0x2c;
const semicolon = 0x3b;

type Role = "name" | "arguments" | "id" | "nothing";

/**
 * Roles of the object's keys. Model families use different keys. An id that only counts the calls is ignored, so
 * its key has the role "nothing".
 */
const roles: ReadonlyMap<string, Role> = new Map<string, Role>([
  ["name", "name"],
  ["tool_name", "name"],
  ["arguments", "arguments"],
  ["parameters", "arguments"],
  ["id", "id"],
  ["tool_call_id", "nothing"],
  ["type", "nothing"],
]);

/** Returns the text of a call before its arguments, in the form that `readJsonCalls` reads. */
export function beforeJsonArguments(name: string, key: "arguments" | "parameters"): string {
  return `{"name": ${JSON.stringify(name)}, "${key}": `;
}

/**
 * Reads one or more calls, either in a list or one after the other. Returns false as soon as an object is not a call.
 */
export function* readJsonCalls(reading: Reading): Wait<boolean> {
  const isList = (yield* reading.space()) === openBracket;
  if (isList) reading.position++;
  do {
    if ((yield* reading.space()) !== openBrace || !(yield* readJsonCall(reading))) return false;
  } while (yield* hasAnother(reading, isList));
  if (isList) yield* reading.mark("]");
  return true;
}

function* hasAnother(reading: Reading, isList: boolean): Wait<boolean> {
  const code = yield* reading.space();
  if (code !== (isList ? comma : semicolon)) return !isList && code === openBrace;
  reading.position++;
  return (yield* reading.space()) === openBrace;
}

/** The members of a call read so far. */
interface Found {
  name: string | null;
  id: string | null;
  /** Complete arguments that have not been emitted yet. */
  early: string | null;
  /** True if the call was emitted completely. */
  isCalled: boolean;
}

/**
 * Reads the object at this position. An object with the name of a tool counts as a call as soon as its arguments begin.
 * It remains a call even if the rest of the object is invalid.
 */
function* readJsonCall(reading: Reading): Wait<boolean> {
  const found: Found = { name: null, id: null, early: null, isCalled: false };
  if (!(yield* readMembers(reading, found, false)) || found.name === null) return found.isCalled;
  if (!found.isCalled) giveWhole(reading, found.name, found.id, found.early ?? "{}");
  found.isCalled = true;
  reading.settle();
  return true;
}

/** Reads the members of an object and its closing brace. */
function* readMembers(reading: Reading, found: Found, isNested: boolean): Wait<boolean> {
  let code = 0;
  do {
    reading.position++;
    yield* reading.space();
    const key = yield* reading.jsonString();
    if (key === null || (yield* reading.space()) !== colon) return false;
    reading.position++;
    const value = yield* reading.space();
    // OpenAI's protocol puts the call into an object under "function". Other model families use this key for the tool's
    // name.
    const isFunction = key === "function" && value === openBrace && !isNested;
    const isRead = isFunction
      ? yield* readMembers(reading, found, true)
      : yield* readMember(reading, found, key === "function" ? "name" : roles.get(key));
    if (!isRead) return false;
    code = yield* reading.space();
  } while (code === comma);
  if (code !== closeBrace) return false;
  reading.position++;
  return true;
}

function* readMember(reading: Reading, found: Found, role: Role | undefined): Wait<boolean> {
  switch (role) {
    case "name":
      if (found.name !== null) return false;
      found.name = yield* reading.jsonString();
      return found.name !== null && reading.tools.has(found.name);
    case "arguments":
      if (found.isCalled || found.early !== null) return false;
      return yield* readArguments(reading, found);
    case "id":
    case "nothing": {
      const text = yield* reading.jsonString();
      if (role === "id") found.id = text;
      return text !== null;
    }
    default:
      return false;
  }
}

/**
 * Reads arguments and emits them as they arrive. Arguments that precede the name, or that are JSON text
 * in a string, are emitted later.
 */
function* readArguments(reading: Reading, found: Found): Wait<boolean> {
  const code = yield* reading.next();
  if (code === openBrace && found.name !== null) {
    found.isCalled = yield* reading.callWithArguments(found.name, found.id);
    return found.isCalled;
  }
  if (code === openBrace) found.early = yield* readEarly(reading);
  else if (code === quote) found.early = objectText(yield* reading.jsonString(Number.POSITIVE_INFINITY));
  else if (yield* reading.literal("null")) found.early = "{}";
  return found.early !== null;
}

function* readEarly(reading: Reading): Wait<string | null> {
  const pieces: string[] = [];
  return (yield* reading.jsonObject((piece) => pieces.push(piece))) ? pieces.join("") : null;
}

/** Returns `text` if it is a JSON object, else null. */
function objectText(text: string | null): string | null {
  if (text === null) return null;
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? text : null;
  } catch {
    return null;
  }
}

function giveWhole(reading: Reading, name: string, id: string | null, args: string): void {
  reading.beginCall(name, id);
  reading.giveArguments(args);
  reading.endCall();
}
