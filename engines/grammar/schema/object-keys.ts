// Owns which schemas the value of a key must match: the layers of an object's constraints, seen from one key. Pure.
import { accepts, both, isEmpty, not } from "../regex/automaton.ts";
import type { Automaton } from "../regex/states.ts";
import { ofTexts } from "../regex/texts.ts";
import type { Goal, Literal, ObjectLayer } from "./conjunct.ts";

/** What the value of a key must match; null where `false` stands for it. */
export function keyGoal(layers: readonly ObjectLayer[], key: string): Goal | null {
  return goalOf(layers.flatMap((layer) => literalsFor(layer, key)));
}

function literalsFor(layer: ObjectLayer, key: string): readonly (Literal | null)[] {
  const found = layer.patterns.filter(({ keys }) => accepts(keys, key)).map(({ value }) => value);
  const own = layer.properties.get(key);
  if (own === undefined && found.length === 0) return [layer.rest];
  return own === undefined ? found : [own, ...found];
}

function goalOf(literals: readonly (Literal | null)[]): Goal | null {
  const goal = literals.filter((literal) => literal !== null);
  return goal.some(({ node, negated }) => node.value === negated) ? null : goal;
}

/** Keys of one kind, and what their values must match. */
export interface KeyClass {
  readonly keys: Automaton;
  readonly goal: Goal;
}

/** The keys beyond those named, by the patterns they match. */
export function otherKeys(
  layers: readonly ObjectLayer[],
  named: readonly string[],
  names: Automaton,
): readonly KeyClass[] {
  let classes = [{ keys: named.length === 0 ? names : both(names, not(ofTexts(named))), matched: new Set<string>() }];
  const patterns = new Map(
    layers.flatMap((layer) => layer.patterns.map(({ source, keys }) => [source, keys] as const)),
  );
  for (const [source, pattern] of patterns) {
    classes = classes.flatMap(({ keys, matched }) => [
      { keys: both(keys, pattern), matched: new Set([...matched, source]) },
      { keys: both(keys, not(pattern)), matched },
    ]);
    classes = classes.filter(({ keys }) => !isEmpty(keys));
  }
  return classes.flatMap(({ keys, matched }) => {
    const literals = layers.flatMap((layer) => {
      const found = layer.patterns.filter((pattern) => matched.has(pattern.source)).map(({ value }) => value);
      return found.length === 0 ? [layer.rest] : found;
    });
    const goal = goalOf(literals);
    return goal === null ? [] : [{ keys, goal }];
  });
}
