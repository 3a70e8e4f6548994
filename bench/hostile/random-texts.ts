// Random grammars, schemas, regexes and templates from a seed: deep, wide, ambiguous, with long names and many repeats. The
// same seed gives the same texts.
import { randomFrom } from "../serving/random.ts";

export interface RandomText {
  readonly kind: "lark" | "regex" | "json_schema" | "template";
  readonly value: unknown;
}

type Random = () => number;
type Maker = (random: Random) => RandomText;

const kinds: readonly Maker[] = [larkGrammar, regex, jsonSchema, template];

/** The text of a number: each is made of the seed and its number alone. */
export function randomText(seed: number, number: number): RandomText {
  const random = randomFrom(seed, number);
  return pick(random, kinds)(random);
}

function larkGrammar(random: Random): RandomText {
  const count = skewed(random, 400);
  const name = (i: number) => `r${i}`;
  const part = (): string => {
    const choice = random();
    if (choice < 0.35) return name(below(random, count));
    if (choice < 0.6) return JSON.stringify(word(random, skewed(random, 40)));
    if (choice < 0.75) return `/[a-${pick(random, ["c", "m", "z"])}]{1,${1 + skewed(random, 60)}}/`;
    return `(${name(below(random, count))} | "${word(random, 1)}")${pick(random, ["*", "+", "?", ""])}`;
  };
  const sequence = () => many(random, skewed(random, 12), part).join(" ");
  const rules = Array.from({ length: count }, (_, i) => {
    const options = many(random, skewed(random, 8), sequence);
    return `${name(i)}: ${[...options, `"${word(random, 1)}"`].join(" | ")}`;
  });
  const comments = "// nothing\n".repeat(random() < 0.1 ? skewed(random, 15_000) : 0);
  return { kind: "lark", value: `start: r0\n${comments}${rules.join("\n")}\n`.slice(0, 262_000) };
}

function regex(random: Random): RandomText {
  const make = (depth: number): string => {
    const choice = random();
    if (depth === 0 || choice < 0.25) return word(random, skewed(random, 30));
    if (choice < 0.45) return `[a-${pick(random, ["f", "p", "z"])}0-9]{0,${1 + skewed(random, 400)}}`;
    if (choice < 0.7) return `(${many(random, skewed(random, 10), () => make(depth - 1)).join("|")})`;
    if (choice < 0.9) return `(${make(depth - 1)})${pick(random, ["*", "+", "?", `{1,${1 + skewed(random, 60)}}`])}`;
    return many(random, skewed(random, 8), () => make(depth - 1)).join("");
  };
  return { kind: "regex", value: make(1 + below(random, 6)).slice(0, 262_000) || "a" };
}

function jsonSchema(random: Random): RandomText {
  const make = (depth: number): object | boolean => {
    const choice = random();
    if (depth === 0 || choice < 0.15) return leaf(random);
    if (choice < 0.5) return object(depth);
    if (choice < 0.65) return { type: "array", items: make(depth - 1), maxItems: skewed(random, 100) };
    if (choice < 0.8) return { anyOf: many(random, skewed(random, 12), () => make(depth - 1)) };
    if (choice < 0.9) return { allOf: many(random, skewed(random, 4), () => make(depth - 1)) };
    return { not: make(depth - 1) };
  };
  const object = (depth: number) => {
    const names = many(random, skewed(random, 60), () => word(random, skewed(random, random() < 0.05 ? 20_000 : 30)));
    const properties = Object.fromEntries(names.map((name) => [name, make(depth - 1)]));
    const required = names.filter(() => random() < 0.3);
    return { type: "object", properties, required, ...(random() < 0.5 && { additionalProperties: make(0) }) };
  };
  return { kind: "json_schema", value: { ...(make(1 + below(random, 5)) as object) } };
}

function leaf(random: Random): object {
  return pick(random, [
    { type: "string", maxLength: skewed(random, 1000) },
    { type: "string", pattern: `^[a-z]{1,${1 + skewed(random, 200)}}$` },
    { type: "integer", minimum: below(random, 1000), maximum: 1000 + skewed(random, 1e9) },
    { enum: many(random, skewed(random, 3000), () => word(random, skewed(random, 20))) },
    { const: word(random, skewed(random, 5000)) },
  ]);
}

/** Of messages; what it renders means nothing. */
function template(random: Random): RandomText {
  const make = (depth: number): string => {
    const choice = random();
    if (depth === 0 || choice < 0.3) return "{{ messages[-1]['content'] }}";
    const inner = make(depth - 1);
    if (choice < 0.6) return `{% for m${depth} in range(${skewed(random, 3000)}) %}${inner}{% endfor %}`;
    if (choice < 0.75) return `{% for m${depth} in messages %}${inner}{{ m${depth}['content'] }}{% endfor %}`;
    if (choice < 0.9) return `{% if messages|length > ${below(random, 4)} %}${inner}{% else %}x{% endif %}`;
    return `{% set s${depth} = '${word(random, skewed(random, 200))}' * ${1 + skewed(random, 50)} %}${inner}`;
  };
  return { kind: "template", value: `{{ messages[0]['content'] }}${make(1 + below(random, 5))}` };
}

function word(random: Random, length: number): string {
  return many(random, Math.max(1, length), () => pick(random, [..."abcdefghij"])).join("");
}

function many<Value>(random: Random, count: number, make: (random: Random) => Value): Value[] {
  return Array.from({ length: Math.max(1, count) }, () => make(random));
}

/** Mostly small, now and then near the limit. */
function skewed(random: Random, limit: number): number {
  return Math.floor(random() ** 4 * limit) + 1;
}

function below(random: Random, limit: number): number {
  return Math.floor(random() * limit);
}

function pick<Value>(random: Random, values: readonly Value[]): Value {
  return values[below(random, values.length)] as Value;
}
