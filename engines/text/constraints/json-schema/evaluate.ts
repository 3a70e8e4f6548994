// Schema evaluation: checks whether a value from the schema (const, enum) matches the schema's other keywords. It does
// not use JavaScript's regular expressions, so no pattern can stall the thread. No side effects.
import { accepts as matchesText } from "../../../../runtime/regex/automaton.ts";
import { spend, spendOn } from "../../../../runtime/regex/work.ts";
import { type Conjunct, type Goal, type Literal, typeOf } from "./conjunct.ts";
import { itemGoal } from "./contradiction.ts";
import type { Expander } from "./expand.ts";
import { keyGoal } from "./object-keys.ts";
import { canonical, has } from "./values.ts";

/** True if the value matches the goal (a set of schemas), that is, at least one of its alternatives. */
export function matchesGoal(value: unknown, goal: Goal, expander: Expander): boolean {
  return expander.alternatives(goal).some((conjunct) => matches(value, conjunct, expander));
}

function matches(value: unknown, conjunct: Conjunct, expander: Expander): boolean {
  spend(2);
  if ((typeOf(value) & conjunct.types) === 0) return false;
  if (has(conjunct.excluded, value)) return false;
  if (conjunct.values !== null && !has(conjunct.values, value)) return false;
  if (typeof value === "number") return matchesNumber(value, conjunct);
  if (typeof value === "string") return matchesString(value, conjunct);
  if (typeof value !== "object" || value === null) return true;
  return Array.isArray(value)
    ? matchesArray(value, conjunct, expander)
    : matchesObject(new Map(Object.entries(value)), conjunct, expander);
}

function matchesNumber(value: number, { lower, upper, multiples }: Conjunct): boolean {
  spendOn(multiples.length);
  if (lower !== null && (value < lower.value || (lower.exclusive && value === lower.value))) return false;
  if (upper !== null && (value > upper.value || (upper.exclusive && value === upper.value))) return false;
  return multiples.every((multiple) => Math.abs(value / multiple - Math.round(value / multiple)) < 1e-6);
}

function matchesString(value: string, { lengthMin, lengthMax, patterns }: Conjunct): boolean {
  spendOn(value.length);
  const length = [...value].length;
  if (length < lengthMin || (lengthMax !== null && length > lengthMax)) return false;
  return patterns.every((pattern) => matchesText(pattern, value));
}

function matchesArray(items: readonly unknown[], conjunct: Conjunct, expander: Expander): boolean {
  const { itemsMin, itemsMax, contains, unique } = conjunct;
  if (items.length < itemsMin || (itemsMax !== null && items.length > itemsMax)) return false;
  spend(items.length);
  if (unique && new Set(items.map(canonical)).size < items.length) return false;
  if (!items.every((item, i) => matchesGoal(item, itemGoal(conjunct, i), expander))) return false;
  return contains.every(({ item, min, max }) => {
    const count = items.filter((one) => matchesGoal(one, [item], expander)).length;
    return count >= min && (max === null || count <= max);
  });
}

function matchesObject(members: ReadonlyMap<string, unknown>, conjunct: Conjunct, expander: Expander): boolean {
  const { propertiesMin, propertiesMax, required, forbidden, names, objects } = conjunct;
  if (members.size < propertiesMin || (propertiesMax !== null && members.size > propertiesMax)) return false;
  spendOn(required.length + forbidden.length + 4 * members.size);
  if (required.some((key) => !members.has(key)) || forbidden.some((key) => members.has(key))) return false;
  return [...members].every(([key, value]) => {
    const goal = keyGoal(objects, key);
    return (
      goal !== null &&
      matchesGoal(value, goal, expander) &&
      names.every((name: Literal) => matchesGoal(key, [name], expander))
    );
  });
}
