// The part of node:assert that the engine uses.

export function ok(value: unknown, message = "assertion failed"): asserts value {
  if (!value) throw new Error(message);
}

export function equal(actual: unknown, expected: unknown, message = `expected ${expected}, got ${actual}`): void {
  if (!Object.is(actual, expected)) throw new Error(message);
}

const assert: typeof ok & { ok: typeof ok; equal: typeof equal; strictEqual: typeof equal } = Object.assign(
  ok.bind(null) as typeof ok,
  { ok, equal, strictEqual: equal },
);

export default assert;
