// Owns the size limits of the values that a chat template makes. The memory limit of a thread is not enough: where one array or
// text does not fit the heap, V8 ends the whole process.
import { Environment, Interpreter } from "@huggingface/jinja";

/** Most characters of a text: more than a request's body has bytes. */
const maxTextLength = 2 ** 26;
/** Most entries of a list: more than a request's body may have values. */
const maxListLength = 2 ** 22;

type Evaluate = Interpreter["evaluate"];

/** Bounds every value that a template makes, for all templates: the library's Template makes its interpreters itself. */
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

/** Jinja's `range`, made only where it is short enough. The library's is as long as it is asked to be. */
function range(first: number, stop?: number, step = 1): number[] {
  const [from, to] = stop === undefined ? [0, first] : [first, stop];
  if (step === 0) throw new Error("range() expects a step other than 0");
  const length = Math.max(0, Math.ceil((to - from) / step));
  checkLength(length, maxListLength, "a list", "entries");
  return Array.from({ length }, (_, i) => from + i * step);
}

function checkLength(length: number, most: number, what: string, unit: string): void {
  // NaN where a template gave no numbers.
  if (!(length <= most)) throw new Error(`it makes ${what} of ${length} ${unit}; expected at most ${most}`);
}
