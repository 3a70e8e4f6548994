// Settings in environment variables: TROUPE_ and the name of the flag, for example TROUPE_MAX_SEQS. Some keys have an older
// name too. Called by config.ts; main.ts prints the warnings.
import { suggestion } from "../../runtime/nearest.ts";
import type { Given, GivenValues } from "./given.ts";
import type { Command, Key } from "./key.ts";
import { appliesTo, type KeyEntry, keyEntries, variablePrefix } from "./keys.ts";
import { environmentSwitch } from "./kinds.ts";

type Environment = Readonly<Record<string, string | undefined>>;

/** Variables with the prefix that are not settings. */
const otherVariables = ["TROUPE_WASM_KERNELS"];

/** Names of the variables that Kubernetes sets in every container of a namespace with a service called `troupe`. */
const serviceLink = /^TROUPE_(?:SERVICE_(?:HOST|PORT)(?:_\w+)?|PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_\w+)?)?)$/;
const serviceAddress = /^(?:tcp|udp|sctp):\/\//;

export function givenByEnvironment(environment: Environment, command: Command): GivenValues {
  const values = new Map<KeyEntry, Given>();
  for (const entry of keyEntries) {
    // A variable that this command does not accept is ignored, because variables, unlike flags, are set for all commands.
    if (!appliesTo(entry, command)) continue;
    const name = entry.variables.find((variable) => isSet(variable, environment[variable], entry.key));
    if (name === undefined) continue;
    const value = readVariable(environment[name] ?? "", entry.key);
    values.set(entry, { value, source: "environment", name, place: "environment" });
  }
  return values;
}

/**
 * Returns whether a variable sets a key. An empty variable counts as unset, except for keys with `refusesEmpty`, whose empty
 * value is rejected later. A variable that Kubernetes has set for a service also counts as unset.
 */
function isSet(name: string, value: string | undefined, { refusesEmpty }: Key): boolean {
  if (value === undefined || (value === "" && refusesEmpty === undefined)) return false;
  return !(serviceLink.test(name) && serviceAddress.test(value));
}

/**
 * Converts the text of a variable: to a list for a repeatable key, to true or false for a switch, otherwise in the same way as
 * the text of a flag.
 */
function readVariable(text: string, key: Key): unknown {
  if (key.repeats) return valuesIn(text).map(key.read);
  const word = environmentSwitch.read(text);
  return typeof word === "boolean" && key.type.safeParse(word).success ? word : key.read(text);
}

/** Returns the values of a list: a JSON array of texts, one JSON object, or texts separated by commas. */
function valuesIn(text: string): readonly string[] {
  const isList = text.trimStart().startsWith("[");
  if (isList) {
    const list = readJson(text);
    if (Array.isArray(list)) return list.map((value) => (typeof value === "string" ? value : JSON.stringify(value)));
  }
  if (isList || text.trimStart().startsWith("{")) return [text];
  return text.split(",").flatMap((part) => part.trim() || []);
}

function readJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Returns a warning for each variable that has the prefix but is not a setting. */
export function unknownVariables(environment: Environment): readonly string[] {
  const known = [...keyEntries.flatMap(({ variables }) => variables), ...otherVariables];
  return Object.keys(environment)
    .filter((name) => name.startsWith(variablePrefix) && !known.includes(name) && !serviceLink.test(name))
    .map((name) => `the environment variable ${name} is not a setting and is ignored${suggestion(name, known)}`);
}
