// Factoring: rewrites rules so that no two options of a choice begin with the same byte or part. `"name" | "nase"`
// becomes `"na" ("me" | "se")`. The grammar engine needs such rules, because it merges states of a rule's automaton in
// two ways: states that follow the same byte, and states that precede the same byte. If one state is merged in both
// ways, the engine accepts texts that the rule does not match: "aa" for `"namea" | "a123" | "name123"`. After
// factoring, no state is merged in the first way. No side effects.
import { intersection, union, unionOf } from "../../../../runtime/regex/char-set.ts";
import { spend, spendOn } from "../../../../runtime/regex/work.ts";
import { choiceOf, type Expression, repeat, rule, sequenceOf, text } from "./expressions.ts";

/** Parts of an option, in sequence. */
type Parts = readonly Expression[];
type Composite = Expression & { readonly kind: "sequence" | "choice" | "repeat" };

/**
 * Returns equivalent rules. The expressions must contain no character sets. The names of the added rules contain a
 * hyphen.
 */
export function factored(rules: ReadonlyMap<string, Expression>): ReadonlyMap<string, Expression> {
  return new Factoring(rules).run();
}

class Factoring {
  /** Rules to rewrite. Rewriting a rule may add further rules. */
  readonly #given: Map<string, Expression>;
  readonly #begins: Beginnings;
  readonly #known = new Map<Composite, Expression>();
  readonly #apartNames = new Map<string, Expression>();
  readonly #ids = new Map<Expression, number>();

  constructor(rules: ReadonlyMap<string, Expression>) {
    this.#given = new Map(rules);
    this.#begins = new Beginnings(this.#given);
  }

  run(): ReadonlyMap<string, Expression> {
    const made = new Map<string, Expression>();
    for (const [name, expression] of this.#given) made.set(name, this.#rewritten(expression));
    return made;
  }

  #define(name: string, expression: Expression): Expression {
    this.#given.set(name, expression);
    return rule(name);
  }

  /**
   * Defines a rule that is rewritten later, not recursively, so that deeply nested tails do not exhaust the call stack.
   */
  #add(prefix: string, expression: Expression): Expression {
    spend(1);
    return expression.kind === "rule" ? expression : this.#define(`${prefix}-${this.#given.size}`, expression);
  }

  #rewritten(expression: Expression): Expression {
    if (expression.kind !== "sequence" && expression.kind !== "choice" && expression.kind !== "repeat")
      return expression;
    const known = this.#known.get(expression);
    if (known !== undefined) return known;
    const made =
      expression.kind === "repeat"
        ? this.#repeat(expression)
        : this.#choice(expression.kind === "choice" ? expression.options : [expression]);
    this.#known.set(expression, made);
    return made;
  }

  /**
   * Rewrites a repetition. The engine expands a bounded repetition into a choice of its lengths, and all options of
   * this choice begin with the repeated part. So a repeated part other than a text or byte set becomes a rule that
   * the engine does not inline.
   */
  #repeat({ of, min, max }: Expression & { kind: "repeat" }): Expression {
    const isLoop = max === 1 || (min <= 1 && max === null);
    const isPlain = of.kind === "text" || of.kind === "bytes";
    return repeat(isLoop || isPlain ? this.#rewritten(of) : this.#apart(of), min, max);
  }

  #choice(options: readonly Expression[]): Expression {
    const groups = new Map<string, Parts[]>();
    spend(options.length);
    for (const option of options) {
      const parts = starLast(option.kind === "sequence" ? option.parts : [option]);
      const key = this.#keyOf(parts);
      const group = groups.get(key);
      if (group === undefined) groups.set(key, [parts]);
      else group.push(parts);
    }
    const distinct = [...groups.values()].map((group) => this.#merged(group));
    return choiceOf(this.#guarded(distinct).map((parts) => sequenceOf(parts.map((part) => this.#rewritten(part)))));
  }

  #keyOf([head]: Parts): string {
    return head === undefined ? "" : head.kind === "text" ? byteKey(utf8(head.text)[0] as number) : this.#partKey(head);
  }

  /** Returns the same key for equal parts. Not used for texts, which are compared byte by byte. */
  #partKey(part: Expression): string {
    if (part.kind === "rule") return `rule ${part.name}`;
    if (part.kind === "bytes") {
      const [lo, hi] = part.ranges;
      return part.ranges.length === 2 && lo === hi ? byteKey(lo as number) : `bytes ${part.ranges.join()}`;
    }
    if (part.kind === "repeat" && part.of.kind === "bytes")
      return `${part.min} to ${part.max} of ${part.of.ranges.join()}`;
    const id = this.#ids.get(part) ?? this.#ids.size;
    this.#ids.set(part, id);
    return `part ${id}`;
  }

  /** Merges the options of a group into one option. All of them begin with the same byte or part. */
  #merged(group: readonly Parts[]): Parts {
    const [first, ...others] = group as [Parts, ...Parts[]];
    if (others.length === 0) return first;
    const keys = [...this.#keysOf(first)];
    let common = keys.length;
    for (const other of others) {
      let count = 0;
      for (const key of this.#keysOf(other)) {
        if (count === common || keys[count] !== key) break;
        count++;
      }
      spendOn(count);
      common = count;
    }
    const [prefix] = split(first, common);
    const tails = group.map((parts) => sequenceOf(split(parts, common)[1]));
    const isEnd = tails.every((tail) => tail.kind === "sequence" && tail.parts.length === 0);
    return isEnd ? prefix : [...prefix, this.#add("tail", choiceOf(tails))];
  }

  *#keysOf(parts: Parts): Iterable<string> {
    for (const part of parts) {
      if (part.kind !== "text") yield this.#partKey(part);
      else for (const byte of utf8(part.text)) yield byteKey(byte);
    }
  }

  /**
   * Wraps the first part of an option in `#apart` where necessary. The engine replaces a rule at the start of an
   * option by the options of that rule. `#apart` prevents the replacement if the rule can begin with the same byte as
   * another option. It also prevents the replacement if the rule can be empty and the parts after the rule can begin
   * with the same byte as the rule.
   */
  #guarded(options: readonly Parts[]): readonly Parts[] {
    if (options.every(([head]) => isNeverReplaced(head))) return options;
    const shared = sharedBytes(options.map((parts) => this.#begins.ofParts(parts).bytes));
    return options.map((parts) => {
      const [head, ...rest] = parts;
      if (head === undefined || isNeverReplaced(head)) return parts;
      const own = this.#begins.of(head);
      const isShared = intersection(own.bytes, shared).length > 0;
      const isLoop = own.canBeEmpty && intersection(own.bytes, this.#begins.ofParts(rest).bytes).length > 0;
      return isShared || isLoop ? [this.#apart(head), ...rest] : parts;
    });
  }

  /** Returns a rule that the engine does not replace by its options: its only option is another rule. */
  #apart(expression: Expression): Expression {
    const inner = this.#add("inner", expression) as Expression & { kind: "rule" };
    const known = this.#apartNames.get(inner.name);
    if (known !== undefined) return known;
    const made = this.#define(`apart-${this.#given.size}`, inner);
    this.#apartNames.set(inner.name, made);
    return made;
  }
}

/**
 * Rewrites `x* x` as `x x*`. In the first form, the same byte can continue the loop or leave it, and the engine
 * merges these two states.
 */
function starLast(parts: Parts): Parts {
  const [star] = parts;
  if (star?.kind !== "repeat" || star.of.kind !== "bytes" || star.min !== 0 || star.max !== null) return parts;
  const key = star.of.ranges.join();
  let count = 1;
  for (let next = parts[count]; next?.kind === "bytes" && next.ranges.join() === key; next = parts[count]) count++;
  return [...parts.slice(1, count), star, ...parts.slice(count)];
}

/**
 * Whether the engine never replaces `part`, the first part of an option, by the options of `part`. This is true for the
 * kinds `text`, `bytes` and `any`, for a repetition that can be empty, and if the option has no parts.
 */
function isNeverReplaced(part: Expression | undefined): boolean {
  if (part === undefined || part.kind === "repeat") return part === undefined || part.min === 0;
  return part.kind === "text" || part.kind === "bytes" || part.kind === "any";
}

/** Set of possible first bytes of the strings that an expression matches. */
interface Beginning {
  /** Sorted, disjoint ranges [lo, hi, lo, hi, …] with inclusive bounds. */
  readonly bytes: readonly number[];
  readonly canBeEmpty: boolean;
}

/** Result for a rule whose first bytes depend on the rule itself, or on a chain of too many other rules. */
const unknown: Beginning = { bytes: [0, 0xff], canBeEmpty: true };
/** Maximum number of nested rules and expressions that are examined to find first bytes. */
const maxDepth = 100;

/** Finds the first bytes of expressions. The result contains all possible first bytes, and may contain others. */
class Beginnings {
  readonly #rules: ReadonlyMap<string, Expression>;
  readonly #known = new Map<string | Expression, Beginning>();
  #depth = 0;

  constructor(rules: ReadonlyMap<string, Expression>) {
    this.#rules = rules;
  }

  ofParts(parts: Parts): Beginning {
    let bytes: readonly number[] = [];
    for (const part of parts) {
      const own = this.of(part);
      bytes = union(bytes, own.bytes);
      if (!own.canBeEmpty) return { bytes, canBeEmpty: false };
    }
    return { bytes, canBeEmpty: true };
  }

  of(expression: Expression): Beginning {
    switch (expression.kind) {
      case "text": {
        const first = utf8(expression.text)[0] as number;
        return { bytes: [first, first], canBeEmpty: false };
      }
      case "bytes":
        return { bytes: expression.ranges, canBeEmpty: false };
      case "rule":
        return this.#once(expression.name, () => this.of(this.#rules.get(expression.name) as Expression));
      case "sequence":
        return this.#once(expression, () => this.ofParts(expression.parts));
      case "choice":
        return this.#once(expression, () => this.#ofChoice(expression.options));
      case "repeat":
        return { ...this.of(expression.of), ...(expression.min === 0 ? { canBeEmpty: true } : {}) };
      default:
        return unknown;
    }
  }

  #ofChoice(options: readonly Expression[]): Beginning {
    const own = options.map((option) => this.of(option));
    return { bytes: unionOf(own.map(({ bytes }) => bytes)), canBeEmpty: own.some(({ canBeEmpty }) => canBeEmpty) };
  }

  #once(key: string | Expression, find: () => Beginning): Beginning {
    const known = this.#known.get(key);
    if (known !== undefined) return known;
    if (this.#depth === maxDepth) return unknown;
    spend(1);
    this.#known.set(key, unknown);
    this.#depth++;
    const found = find();
    this.#depth--;
    this.#known.set(key, found);
    return found;
  }
}

/** Returns the bytes that are in more than one of the sets. */
function sharedBytes(sets: readonly (readonly number[])[]): readonly number[] {
  let all: readonly number[] = [];
  let shared: readonly number[] = [];
  for (const set of sets) {
    shared = union(shared, intersection(all, set));
    all = union(all, set);
  }
  return shared;
}

function byteKey(byte: number): string {
  return `byte ${byte}`;
}

const utf8Encoder = new TextEncoder();

function utf8(value: string): Uint8Array {
  spendOn(value.length);
  return utf8Encoder.encode(value);
}

/**
 * Splits a sequence of parts into two after `count` units. A unit is one byte of a text, or one part of another kind.
 * If the split is inside a character, the bytes of the character become separate parts.
 */
function split(parts: Parts, count: number): [Parts, Parts] {
  let left = count;
  for (const [i, part] of parts.entries()) {
    if (left === 0) return [parts.slice(0, i), parts.slice(i)];
    if (part.kind !== "text") {
      left--;
      continue;
    }
    const encoded = utf8(part.text);
    if (encoded.length > left) {
      const [before, after] = [encoded.subarray(0, left), encoded.subarray(left)].map(textOfBytes) as [Parts, Parts];
      return [
        [...parts.slice(0, i), ...before],
        [...after, ...parts.slice(i + 1)],
      ];
    }
    left -= encoded.length;
  }
  return [parts, []];
}

/** Converts bytes to a text part. An incomplete character at the start or end becomes single bytes. */
function textOfBytes(encoded: Uint8Array): Parts {
  let from = 0;
  while (from < encoded.length && isContinuation(encoded[from] as number)) from++;
  let to = encoded.length;
  const last = encoded.findLastIndex((byte) => !isContinuation(byte));
  if (last >= from && last + lengthOf(encoded[last] as number) > encoded.length) to = last;
  const single = (byte: number): Expression => ({ kind: "bytes", ranges: [byte, byte] });
  const middle = from < to ? [text(new TextDecoder().decode(encoded.subarray(from, to)))] : [];
  return [...[...encoded.subarray(0, from)].map(single), ...middle, ...[...encoded.subarray(to)].map(single)];
}

function isContinuation(byte: number): boolean {
  return (byte & 0xc0) === 0x80;
}

/** Returns the number of bytes of a character, by its first byte. */
function lengthOf(byte: number): number {
  return byte < 0xc0 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}
