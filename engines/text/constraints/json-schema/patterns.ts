// Patterns: caches the automata of the regular expressions in one schema. Each automaton is built once, because many
// fields share a pattern. No side effects.
import { not } from "../../../../runtime/regex/automaton.ts";
import { automatonOf } from "../../../../runtime/regex/determinise.ts";
import { parseRegex } from "../../../../runtime/regex/parse.ts";
import type { Automaton } from "../../../../runtime/regex/states.ts";

export class Patterns {
  readonly #found = new Map<string, Automaton>();
  readonly #absent = new Map<Automaton, Automaton>();

  /** Returns the automaton that accepts the strings in which the pattern occurs. Throws RegexProblem. */
  find(source: string): Automaton {
    const known = this.#found.get(source) ?? automatonOf(parseRegex(source), "anywhere");
    this.#found.set(source, known);
    return known;
  }

  /** Returns the complement of the automaton. */
  not(automaton: Automaton): Automaton {
    const known = this.#absent.get(automaton) ?? not(automaton);
    this.#absent.set(automaton, known);
    return known;
  }
}
