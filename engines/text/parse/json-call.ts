// Owns calls that are JSON objects: a tool's name, its arguments and at times an id. Read by every format whose calls look so.
import type { Reading, Wait } from "./reading.ts";

const quote = 0x22;
const openBrace = 0x7b;
const closeBrace = 0x7d;
const openBracket = 0x5b;
const colon = 0x3a;
const comma = 0x2c;
const semicolon = 0x3b;

type Role = "name" | "arguments" | "id" | "nothing";

/** What a key of the object says; families spell the same things differently. An id that is only a counter says nothing. */
const roles: ReadonlyMap<string, Role> = new Map<string, Role>([
  ["name", "name"],
  ["tool_name", "name"],
  ["arguments", "arguments"],
  ["parameters", "arguments"],
  ["id", "id"],
  ["tool_call_id", "nothing"],
  ["type", "nothing"],
]);

/** Up to a call's arguments, as `readJsonCalls` reads it. */
export function beforeJsonArguments(name: string, key: "arguments" | "parameters"): string {
  return `{"name": ${JSON.stringify(name)}, "${key}": `;
}

/** Reads one call or several: in a list, or one after the other. False where the first is none. */
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

/** What the members of a call have said so far. */
interface Found {
  name: string | null;
  id: string | null;
  /** Arguments that are whole and have not been given. */
  early: string | null;
  /** The call came out whole. */
  isCalled: boolean;
}

/**
 * Reads the object that begins here. It is a call once its arguments begin and its name is a tool's, and is one after
 * them, whatever becomes of the rest of the object.
 */
function* readJsonCall(reading: Reading): Wait<boolean> {
  const found: Found = { name: null, id: null, early: null, isCalled: false };
  if (!(yield* readMembers(reading, found, false)) || found.name === null) return found.isCalled;
  if (!found.isCalled) giveWhole(reading, found.name, found.id, found.early ?? "{}");
  found.isCalled = true;
  reading.settle();
  return true;
}

/** Reads an object's members and its end. */
function* readMembers(reading: Reading, found: Found, isNested: boolean): Wait<boolean> {
  let code = 0;
  do {
    reading.position++;
    yield* reading.space();
    const key = yield* reading.jsonString();
    if (key === null || (yield* reading.space()) !== colon) return false;
    reading.position++;
    const value = yield* reading.space();
    // What OpenAI's protocol puts around a call; others put the name there.
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

/** They go out as they come, but those before the name, and those that are a string of JSON text. */
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

/** The text where it is that of a JSON object. */
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
