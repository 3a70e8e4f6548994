// Object rules: the grammar rules of a JSON object. Named keys come in the order of the schema, before all other keys.
// There is one rule for each next possible key. If properties are counted, each count has separate rules. No side
// effects.

import { accepts, both } from "../../../../../runtime/regex/automaton.ts";
import { type Automaton, anyText, maxStates } from "../../../../../runtime/regex/states.ts";
import { spend } from "../../../../../runtime/regex/work.ts";
import { choice, choiceOf, type Expression, rule, sequence, text } from "../../ebnf/expressions.ts";
import type { Conjunct, Goal } from "../conjunct.ts";
import { type KeyClass, keyGoal, otherKeys } from "../object-keys.ts";
import type { Emitter } from "./emitter.ts";
import { closeObject, colon, comma, keyText, openObject } from "./json-text.ts";
import { affords, keyAutomaton, keyRest } from "./strings.ts";

const maxPlaces = 3000;
/** Maximum number of properties that the grammar counts. A larger bound is checked in the finished text. */
const maxCounted = 64;

interface Member {
  readonly key: string;
  readonly goal: Goal;
  readonly isRequired: boolean;
}

export function objectExpression(conjunct: Conjunct, emitter: Emitter): Expression | null {
  const names = allowedNames(conjunct, emitter);
  const members = membersOf(conjunct, names);
  if (members === null) return null;
  if (members.length > maxPlaces) throw tooManyProperties(emitter);
  return new ObjectRules(conjunct, members, othersOf(conjunct, names, emitter), emitter).expression();
}

function tooManyProperties(emitter: Emitter): Error {
  return emitter.refuse("properties", "this object has too many properties to count; name fewer");
}

/** Returns the classes of unnamed keys. Throws if too many named keys would have to be excluded from the classes. */
function othersOf(conjunct: Conjunct, names: Automaton, emitter: Emitter): readonly KeyClass[] {
  const others = otherKeys(conjunct.objects, [...knownKeys(conjunct)], names);
  for (const { keys } of others) {
    const isTooMuch = keys !== anyText && (keys.length > maxStates || !affords(keys, emitter));
    if (isTooMuch)
      throw emitter.refuse(
        "properties",
        "the named keys are too many or too long to tell other keys from them; set additionalProperties to false",
      );
  }
  return others;
}

/** Returns the automaton that accepts the keys that `propertyNames` allows. */
function allowedNames(conjunct: Conjunct, emitter: Emitter): Automaton {
  return conjunct.names.reduce((names: Automaton, literal) => {
    const allowed = keyAutomaton([literal], emitter);
    return allowed === null ? noKey : both(names, allowed);
  }, anyText);
}

const noKey: Automaton = [{ accepts: false, edges: [] }];

function knownKeys(conjunct: Conjunct): ReadonlySet<string> {
  return new Set([
    ...conjunct.objects.flatMap((layer) => [...layer.properties.keys()]),
    ...conjunct.required,
    ...conjunct.forbidden,
  ]);
}

/** Returns the named keys that are allowed, in order. Returns null if a required key is not allowed. */
function membersOf(conjunct: Conjunct, names: Automaton): readonly Member[] | null {
  const members: Member[] = [];
  const [required, forbidden] = [new Set(conjunct.required), new Set(conjunct.forbidden)];
  for (const key of knownKeys(conjunct)) {
    spend(1);
    const isRequired = required.has(key);
    const goal = forbidden.has(key) || !accepts(names, key) ? null : keyGoal(conjunct.objects, key);
    if (goal !== null) members.push({ key, goal, isRequired });
    else if (isRequired) return null;
  }
  return members;
}

/** Position in the object: before member `index`, with `count` properties written. */
interface Place {
  readonly index: number;
  readonly count: number;
}

class ObjectRules {
  readonly #members: readonly Member[];
  readonly #others: readonly KeyClass[];
  readonly #emitter: Emitter;
  readonly #min: number;
  readonly #max: number | null;
  readonly #names = new Map<string, string>();
  readonly #todo: Place[] = [];
  readonly #otherMembers: readonly Expression[];

  constructor(conjunct: Conjunct, members: readonly Member[], others: readonly KeyClass[], emitter: Emitter) {
    this.#members = members;
    this.#emitter = emitter;
    const required = members.filter((member) => member.isRequired).length;
    const bounds = countBounds(conjunct, required, members.length, others.length > 0, emitter);
    this.#min = bounds.min;
    this.#max = bounds.max;
    this.#others = others;
    this.#otherMembers = this.#others.map((keys) => this.#otherMember(keys));
  }

  expression(): Expression {
    const whole = sequence(openObject, this.#at({ index: 0, count: 0 }));
    for (let place = this.#todo.pop(); place !== undefined; place = this.#todo.pop()) {
      this.#emitter.rules.define(this.#names.get(keyOf(place)) as string, this.#body(place));
    }
    return whole;
  }

  /**
   * Returns the expression for the rest of the object at a position. Next comes the named member; an optional member
   * may be skipped. After the last named member comes the closing brace or an unnamed key.
   */
  #body(place: Place): Expression {
    const { index, count } = place;
    const member = this.#members[index];
    const lead = count === 0 ? text("") : comma;
    const isFull = this.#max !== null && count >= this.#max;
    if (member !== undefined) {
      const value = (): Expression => this.#emitter.value(member.goal);
      const taken = isFull
        ? []
        : [sequence(lead, keyText(member.key), value(), this.#at({ index: index + 1, count: count + 1 }))];
      return choice(...taken, ...(member.isRequired ? [] : [this.#at({ index: index + 1, count })]));
    }
    const more = isFull
      ? []
      : this.#otherMembers.map((other) => sequence(lead, other, this.#at({ index, count: count + 1 })));
    const end = count < this.#min ? [] : [count === 0 ? text("}") : closeObject];
    return choiceOf([...end, ...more]);
  }

  #otherMember({ keys, goal }: KeyClass): Expression {
    const value = this.#emitter.value(goal);
    if (keys === anyText) return sequence(this.#emitter.shared.string(), colon, value);
    return sequence(text('"'), this.#emitter.rules.add("key", keyRest(keys, this.#emitter)), colon, value);
  }

  #at(place: Place): Expression {
    const settled = { index: place.index, count: this.#settled(place.count) };
    const key = keyOf(settled);
    let name = this.#names.get(key);
    if (name === undefined) {
      spend(2);
      if (this.#names.size >= maxPlaces) throw tooManyProperties(this.#emitter);
      name = this.#emitter.rules.reserve("members");
      this.#names.set(key, name);
      this.#todo.push(settled);
    }
    return rule(name);
  }

  /**
   * Maps counts that need the same rules to one number. 0 has its own rules, because no comma precedes the first
   * property.
   */
  #settled(count: number): number {
    return Math.min(count, Math.max(1, this.#min, this.#max ?? 0));
  }
}

/** Returns the bounds on the number of properties that the grammar must count. */
function countBounds(
  { propertiesMin, propertiesMax }: Conjunct,
  required: number,
  named: number,
  isOpen: boolean,
  emitter: Emitter,
): { min: number; max: number | null } {
  let min = propertiesMin <= required ? 0 : propertiesMin;
  let max = propertiesMax !== null && (isOpen || named > propertiesMax) ? propertiesMax : null;
  // The model may write the same unnamed key twice, which counts as one property. So the minimum
  // is checked in the finished text.
  if (min > 1 && isOpen) emitter.checkLater("minProperties");
  if (min > maxCounted) {
    emitter.checkLater("minProperties");
    min = maxCounted;
  }
  if (max !== null && max > maxCounted) {
    emitter.checkLater("maxProperties");
    max = null;
  }
  return { min, max };
}

function keyOf({ index, count }: Place): string {
  return `${index}:${count}`;
}
