// Owns calls that are JSON objects: a tool's name, its arguments and at times an id. Read by every format whose calls look so.
import type { Reading, Wait } from "./reading.ts";

const openBrace = 0x7b;
const closeBrace = 0x7d;
const openBracket = 0x5b;
const colon = 0x3a;
const comma = 0x2c;
const semicolon = 0x3b;

/** What a key of the object says; families spell the same things differently. An id that is only a counter says nothing. */
const roles: ReadonlyMap<string, "name" | "arguments" | "id" | "nothing"> = new Map([
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

/** Reads the object that begins here. It is a call once its arguments begin and its name is a tool's. */
function* readJsonCall(reading: Reading): Wait<boolean> {
  let name: string | null = null;
  let id: string | null = null;
  /** Arguments before the name, which wait for it. */
  let early: string | null = null;
  let isCalled = false;
  let code = 0;
  do {
    reading.position++;
    yield* reading.space();
    const key = yield* reading.jsonString();
    if (key === null || (yield* reading.space()) !== colon) return false;
    reading.position++;
    yield* reading.space();
    switch (roles.get(key)) {
      case "name": {
        if (name !== null) return false;
        name = yield* reading.jsonString();
        if (name === null || !reading.tools.has(name)) return false;
        break;
      }
      case "arguments": {
        if (isCalled || early !== null) return false;
        if (name === null) early = yield* readEarly(reading);
        else isCalled = yield* reading.callWithArguments(name, id);
        if (early === null && !isCalled) return false;
        break;
      }
      case "id":
      case "nothing": {
        const text = yield* reading.jsonString();
        if (text === null) return false;
        if (key === "id") id = text;
        break;
      }
      default:
        return false;
    }
    code = yield* reading.space();
  } while (code === comma);
  if (code !== closeBrace || name === null) return false;
  reading.position++;
  if (!isCalled) giveWhole(reading, name, id, early ?? "{}");
  reading.settle();
  return true;
}

function* readEarly(reading: Reading): Wait<string | null> {
  const pieces: string[] = [];
  return (yield* reading.jsonObject((piece) => pieces.push(piece))) ? pieces.join("") : null;
}

function giveWhole(reading: Reading, name: string, id: string | null, args: string): void {
  reading.beginCall(name, id);
  reading.giveArguments(args);
  reading.endCall();
}
