// Object keys: the schemas that the value of a key must match, collected from the layers of an object's constraints. A
// layer has the constraints of one keyword. No side effects.
import { accepts, both, isEmpty, not } from "../../../../runtime/regex/automaton.ts";
import type { Automaton } from "../../../../runtime/regex/states.ts";
import { ofTexts } from "../../../../runtime/regex/texts.ts";
import { spend } from "../../../../runtime/regex/work.ts";
import type { Goal, Literal, ObjectLayer } from "./conjunct.ts";

/** Returns the schemas that the value of a key must match; null if a `false` schema forbids the key. */
export function keyGoal(layers: readonly ObjectLayer[], key: string): Goal | null {
  spend(layers.length / 2);
  return goalOf(layers.flatMap((layer) => literalsFor(layer, key)));
}

function literalsFor(layer: ObjectLayer, key: string): readonly (Literal | null)[] {
  if (layer.patterns.length === 0)
    return [layer.properties.has(key) ? (layer.properties.get(key) ?? null) : layer.rest];
  spend(layer.patterns.length / 4);
  const found = layer.patterns.filter(({ keys }) => accepts(keys, key)).map(({ value }) => value);
  const own = layer.properties.get(key);
  if (own === undefined && found.length === 0) return [layer.rest];
  return own === undefined ? found : [own, ...found];
}

function goalOf(literals: readonly (Literal | null)[]): Goal | null {
  const goal = literals.filter((literal) => literal !== null);
  return goal.some(({ node, negated }) => node.value === negated) ? null : goal;
}

/** A set of keys, and the schemas that the value of each of these keys must match. */
export interface KeyClass {
  readonly keys: Automaton;
  readonly goal: Goal;
}

/**
 * Groups the keys that are not in `named` into classes. Keys of one class match the same patterns.
 * `names` accepts all allowed keys.
 */
export function otherKeys(
  layers: readonly ObjectLayer[],
  named: readonly string[],
  names: Automaton,
): readonly KeyClass[] {
  const patterns = new Map(
    layers.flatMap((layer) => layer.patterns.map(({ source, keys }) => [source, keys] as const)),
  );
  // Shortcut for an object that allows no unnamed keys: an automaton of its named keys is not needed.
  if (patterns.size === 0 && goalOfOthers(layers, new Set()) === null) return [];
  let classes = [{ keys: named.length === 0 ? names : both(names, not(ofTexts(named))), matched: new Set<string>() }];
  for (const [source, pattern] of patterns) {
    const unmatched = not(pattern);
    classes = classes.flatMap(({ keys, matched }) => [
      { keys: both(keys, pattern), matched: new Set([...matched, source]) },
      { keys: both(keys, unmatched), matched },
    ]);
    classes = classes.filter(({ keys }) => !isEmpty(keys));
  }
  return classes.flatMap(({ keys, matched }) => {
    const goal = goalOfOthers(layers, matched);
    return goal === null ? [] : [{ keys, goal }];
  });
}

/**
 * Returns the schemas for values of unnamed keys that match exactly the patterns in `matched`; null if such keys are
 * forbidden.
 */
function goalOfOthers(layers: readonly ObjectLayer[], matched: ReadonlySet<string>): Goal | null {
  spend(layers.length / 2);
  const literals = layers.flatMap((layer) => {
    const found = layer.patterns.filter((pattern) => matched.has(pattern.source)).map(({ value }) => value);
    return found.length === 0 ? [layer.rest] : found;
  });
  return goalOf(literals);
}
