// Formats of JSON schema: patterns of the strings (or bounds of the numbers) that a model may write. Each pattern
// allows only valid strings of the format, but not all valid strings. A format without an entry is an annotation, as
// the JSON schema draft defines it. No side effects.

import { automatonOf } from "../../../../runtime/regex/determinise.ts";
import { parseRegex } from "../../../../runtime/regex/parse.ts";
import type { Automaton } from "../../../../runtime/regex/states.ts";
import { unmetered } from "../../../../runtime/regex/work.ts";
import { type Conjunct, top, types } from "./conjunct.ts";

const leapYear = "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)";
const date = `(?:\\d{4}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1\\d|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)|${leapYear}-02-29)`;
const timeOfDay = "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?";
const time = `${timeOfDay}(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)`;
const label = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,16}[A-Za-z0-9])?";
// The number of labels is not limited. With a limit, the grammar engine would have to search the vocabulary again
// at every character of a label.
const hostname = `${label}(?:\\.${label})*`;
const maxHostname = 253;
const octet = "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
const hex = "[0-9a-fA-F]{1,4}";
const ipv6 = [
  `(?:${hex}:){7}${hex}`,
  ...[0, 1, 2, 3, 4, 5, 6].map(
    (before) =>
      `${before === 0 ? "" : `(?:${hex}:){${before - 1}}${hex}`}::(?:(?:${hex}:){0,${Math.max(0, 5 - before)}}${hex})?`,
  ),
].join("|");
const urlChars = "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})";
const templateChars = "(?:[A-Za-z0-9._~!$&()*+,;=:@-]|%[0-9A-Fa-f]{2})";
const queryChars = "(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})";
const path = `(?:/${urlChars}*)*(?:\\?${queryChars}*)?(?:#${queryChars}*)?`;
const domain = "(?:[a-z0-9]+(?:-[a-z0-9]+)*\\.)+[a-z]{2,10}";
const pointer = "(?:/(?:[^~/\\p{Cc}]|~[01])*)*";
const dateDuration = "(?:\\d{1,6}Y(?:\\d{1,6}M(?:\\d{1,6}D)?)?|\\d{1,6}M(?:\\d{1,6}D)?|\\d{1,6}D)";
const timeDuration = "T(?:\\d{1,6}H(?:\\d{1,6}M(?:\\d{1,6}S)?)?|\\d{1,6}M(?:\\d{1,6}S)?|\\d{1,6}S)";

const sources: ReadonlyMap<string, string> = new Map([
  ["date", date],
  ["time", time],
  ["date-time", `${date}T${time}`],
  ["iso-time", time],
  ["iso-date-time", `${date}T${time}`],
  ["duration", `P(?:\\d{1,6}W|${dateDuration}(?:${timeDuration})?|${timeDuration})`],
  ["email", `[A-Za-z0-9_+-]+(?:\\.[A-Za-z0-9_+-]+)*@(?:[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*\\.)+[A-Za-z]{2,10}`],
  ["hostname", hostname],
  ["ipv4", `(?:${octet}\\.){3}${octet}`],
  ["ipv6", ipv6],
  ["uri", `[a-z][a-z0-9+-]{1,20}://${hostname}(?::[1-9]\\d{0,3})?${path}`],
  ["uri-reference", `(?:https?://${hostname}(?::[1-9]\\d{0,3})?)?${path}`],
  ["uri-template", `https?://${hostname}(?:/(?:${templateChars}|\\{[a-z][A-Za-z0-9_]*\\})*)*`],
  ["url", `https?://${domain}(?:/${path})?`],
  ["uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"],
  ["json-pointer", pointer],
  ["json-pointer-uri-fragment", "#(?:/(?:[A-Za-z0-9_.!$&'()*+,;:=@-]|~[01])*)*"],
  ["relative-json-pointer", `(?:0|[1-9]\\d{0,5})(?:#|${pointer})`],
  ["regex", "\\^?(?:(?:[A-Za-z0-9 _@:/,-]|\\\\[dDwWsS.]|\\.|\\[(?:a-z|A-Z|0-9|_)+\\])[*+?]?)*\\$?"],
  ["byte", "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"],
]);

const automata = new Map<string, Automaton>();

export function formatConstraint(format: string): Conjunct {
  if (format === "int32" || format === "int64") {
    const wholeOrNoNumber = top.types & ~types.fraction;
    if (format === "int64") return { ...top, types: wholeOrNoNumber };
    const range = { lower: { value: -(2 ** 31), exclusive: false }, upper: { value: 2 ** 31 - 1, exclusive: false } };
    return { ...top, ...range, types: wholeOrNoNumber };
  }
  const source = sources.get(format);
  if (source === undefined) return top;
  let automaton = automata.get(format);
  if (automaton === undefined) {
    automaton = unmetered(() => automatonOf(parseRegex(source), "whole"));
    automata.set(format, automaton);
  }
  return { ...top, patterns: [automaton], lengthMax: format === "hostname" ? maxHostname : null };
}
