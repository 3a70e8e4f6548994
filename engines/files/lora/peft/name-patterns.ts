// Name patterns: values that a PEFT config assigns to modules by pattern. A pattern is a module's full name, the end of
// its name after a dot, or a regular expression that matches one of these. Expressions are run as automata with bounded
// work, because the config comes from a client.

import { accepts } from "../../../../runtime/regex/automaton.ts";
import { automatonOf } from "../../../../runtime/regex/determinise.ts";
import { parseRegex } from "../../../../runtime/regex/parse.ts";
import type { Automaton } from "../../../../runtime/regex/states.ts";
import { RegexProblem } from "../../../../runtime/regex/syntax.ts";
import { bounded, TooMuchWork } from "../../../../runtime/regex/work.ts";
import { quote } from "../../gguf/invalid-file.ts";
import { invalidAdapter } from "../adapter-problems.ts";

/** Maximum number of regular expressions. Plain names have no limit, because they are looked up in a map. */
const maxExpressions = 64;

interface Numbered {
  /** Position among all patterns; the first matching pattern is used. */
  readonly order: number;
  readonly value: number;
}

export class NamePatterns {
  readonly #names = new Map<string, Numbered>();
  readonly #expressions: (Numbered & { readonly automaton: Automaton })[] = [];

  /** Parses the patterns. `key` is their key in the config, for errors. Throws `invalid_lora_adapter`. */
  constructor(key: string, patterns: readonly (readonly [pattern: string, value: number])[]) {
    const expressions = patterns.flatMap(([pattern, value], order): [string, Numbered][] => {
      if (!/^[\w.]+$/.test(pattern)) return [[pattern, { order, value }]];
      this.#names.set(pattern, { order, value });
      return [];
    });
    if (expressions.length > maxExpressions) {
      throw invalidAdapter(
        `its ${key} has ${expressions.length} regular expressions; at most ${maxExpressions} are read`,
      );
    }
    bounded(() => {
      for (const [pattern, numbered] of expressions) {
        this.#expressions.push({ ...numbered, automaton: compile(key, pattern) });
      }
    });
  }

  /** Returns the value for a module, given by its full name. */
  find(module: string): number | undefined {
    const ends = [module, ...[...module.matchAll(/\./g)].map(({ index }) => module.slice(index + 1))];
    const named = ends.flatMap((end) => this.#names.get(end) ?? []);
    const matched = this.#expressions.find(({ automaton }) => accepts(automaton, module));
    return [...named, ...(matched ? [matched] : [])].sort((one, other) => one.order - other.order)[0]?.value;
  }
}

function compile(key: string, pattern: string): Automaton {
  try {
    return automatonOf(parseRegex(`(.*\\.)?(${pattern})`), "whole");
  } catch (error) {
    if (!(error instanceof RegexProblem || error instanceof TooMuchWork)) throw error;
    throw invalidAdapter(`its ${key} has the pattern ${quote(pattern)}, which cannot be used: ${error.message}`);
  }
}
