// Size limits for the values that a chat template creates. A memory limit for the thread is not enough: if one array or
// string does not fit in the heap, V8 ends the whole process.
import { Environment, Interpreter } from "@huggingface/jinja";

/** Maximum number of characters of a string. It is larger than the number of bytes in a request body. */
const maxTextLength = 2 ** 26;
/** Maximum number of entries of a list. It is larger than the number of values in a request body. */
const maxListLength = 2 ** 22;

type Evaluate = Interpreter["evaluate"];

/**
 * Limits the size of every value of all templates. It patches the interpreter's prototype, because the library's
 * Template class creates its own interpreters.
 */
export function boundValues(): void {
  const { evaluate, run } = Interpreter.prototype;
  Interpreter.prototype.evaluate = function (this: Interpreter, ...given: Parameters<Evaluate>) {
    const value = evaluate.apply(this, given);
    if (typeof value.value === "string") checkLength(value.value.length, maxTextLength, "a text", "characters");
    else if (Array.isArray(value.value)) checkLength(value.value.length, maxListLength, "a list", "entries");
    return value;
  };
  const own = new Environment();
  own.set("range", range);
  const boundedRange = own.lookupVariable("range");
  Interpreter.prototype.run = function (this: Interpreter, ...given: Parameters<Interpreter["run"]>) {
    this.global.setVariable("range", boundedRange);
    return run.apply(this, given);
  };
}

/** Jinja's `range` with a length limit. The library's own `range` has none. */
function range(first: number, stop?: number, step = 1): number[] {
  const [from, to] = stop === undefined ? [0, first] : [first, stop];
  if (step === 0) throw new Error("range() expects a step other than 0");
  const length = Math.max(0, Math.ceil((to - from) / step));
  checkLength(length, maxListLength, "a list", "entries");
  return Array.from({ length }, (_, i) => from + i * step);
}

function checkLength(length: number, most: number, what: string, unit: string): void {
  // The length is NaN if the template passed values that are not numbers. The negated comparison catches NaN too.
  if (!(length <= most)) throw new Error(`it creates ${what} of ${length} ${unit}; expected at most ${most}`);
}
