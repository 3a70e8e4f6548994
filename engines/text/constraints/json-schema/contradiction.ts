// Contradiction check: finds alternatives of a schema that no value matches. expand.ts uses it to remove dead
// alternatives and to prove that branches of `oneOf` are disjoint. It may miss contradictions, but never reports one
// for an alternative that a value matches. No side effects.
import { spend } from "../../../../runtime/regex/work.ts";
import { type Conjunct, type Goal, types } from "./conjunct.ts";
import { keyGoal } from "./object-keys.ts";

const lookAhead = 4;

/** Checks whether no value can match a goal (a set of schemas). Examines at most `depth` levels of nested schemas. */
interface GoalCheck {
  isNever(goal: Goal, depth: number): boolean;
}

export function isContradiction(conjunct: Conjunct, goals: GoalCheck, depth = lookAhead): boolean {
  spend(4);
  if (conjunct.values !== null) return conjunct.values.length === 0;
  if (conjunct.types === types.object) return hasDeadProperty(conjunct, goals, depth);
  if (conjunct.types === types.array) return hasDeadItem(conjunct, goals, depth);
  return conjunct.types === 0;
}

function hasDeadProperty(conjunct: Conjunct, goals: GoalCheck, depth: number): boolean {
  spend(conjunct.required.length / 4);
  return conjunct.required.some((key) => isDead(keyGoal(conjunct.objects, key), goals, depth));
}

function hasDeadItem(conjunct: Conjunct, goals: GoalCheck, depth: number): boolean {
  for (let i = 0; i < Math.min(conjunct.itemsMin, 8); i++) {
    if (isDead(itemGoal(conjunct, i), goals, depth)) return true;
  }
  return false;
}

function isDead(goal: Goal | null, goals: GoalCheck, depth: number): boolean {
  return goal === null || goals.isNever(goal, depth);
}

/** Returns the schemas that item `i` of an array must match. */
export function itemGoal(conjunct: Conjunct, i: number): Goal {
  spend(conjunct.arrays.length / 4);
  return conjunct.arrays.flatMap(({ prefix, rest }) => {
    const literal = i < prefix.length ? prefix[i] : rest;
    return literal === null || literal === undefined ? [] : [literal];
  });
}
