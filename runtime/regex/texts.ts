// Minimal automaton of a list of texts. The texts are sorted, so all texts that pass through a state are adjacent. A state is
// finished when no later text can pass through it. Linear in the number of characters. No side effects.

import { charOf } from "./char-set.ts";
import { type Automaton, type Edge, explore, noText, type State, stateOf } from "./states.ts";
import { RegexProblem } from "./syntax.ts";
import { spend, spendOn } from "./work.ts";

const maxTextStates = 20_000;

/**
 * Returns the automaton that accepts only these texts. Texts with half a surrogate pair are skipped,
 * because a model cannot write them.
 */
export function ofTexts(texts: Iterable<string>): Automaton {
  const sorted = [...new Set(texts)].filter((text) => !/\p{Cs}/u.test(text)).sort();
  if (sorted.length === 0) return noText;
  const builder = new Builder();
  for (const text of sorted) builder.add(Array.from(text, (char) => char.codePointAt(0) as number));
  return builder.automaton();
}

/** A state that later texts may still use. Its last edge, to the next open state, is not added yet. */
interface OpenState {
  accepts: boolean;
  readonly edges: Edge[];
}

class Builder {
  /** Finished states. The targets of a state come before it in the list. */
  readonly #states: State[] = [];
  readonly #numbers = new Map<string, number>();
  /** Open states (states that later texts may still use) along the last added text, and the characters of that text. */
  readonly #open: OpenState[] = [{ accepts: false, edges: [] }];
  #chars: readonly number[] = [];

  /** Adds a text. Texts must be added in sorted order. */
  add(chars: readonly number[]): void {
    spendOn(chars.length);
    let shared = 0;
    while (shared < this.#chars.length && this.#chars[shared] === chars[shared]) shared++;
    this.#close(shared);
    this.#chars = chars;
    for (let at = shared; at < chars.length; at++) this.#open.push({ accepts: false, edges: [] });
    (this.#open.at(-1) as OpenState).accepts = true;
  }

  automaton(): Automaton {
    this.#close(0);
    const start = this.#numberOf(this.#open[0] as OpenState);
    return explore<number>(
      start,
      (at) => at,
      (at) => stateOf(this.#states, at),
      Number.POSITIVE_INFINITY,
    );
  }

  /** Finishes the states after the first `count` characters of the last text. */
  #close(count: number): void {
    for (let at = this.#chars.length; at > count; at--) {
      const to = this.#numberOf(this.#open.pop() as OpenState);
      (this.#open[at - 1] as OpenState).edges.push({ set: charOf(this.#chars[at - 1] as number), to });
    }
  }

  /** Returns the number of a state. All states that accept the same remaining texts share one number. */
  #numberOf({ accepts, edges }: OpenState): number {
    spend(1 + edges.length);
    const key = `${accepts} ${edges.map(({ set, to }) => `${set[0]}:${to}`).join()}`;
    const known = this.#numbers.get(key);
    if (known !== undefined) return known;
    if (this.#states.length >= maxTextStates) throw tooMany();
    this.#numbers.set(key, this.#states.length);
    return this.#states.push({ accepts, edges }) - 1;
  }
}

function tooMany(): RegexProblem {
  return new RegexProblem(
    "unsupported",
    "there are too many texts, or too long ones, to be enforced together; name fewer",
  );
}
