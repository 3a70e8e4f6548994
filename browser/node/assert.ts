// The part of node:assert that the engine uses.

export function ok(value: unknown, message = "assertion failed"): asserts value {
  if (!value) throw new Error(message);
}

export function equal(actual: unknown, expected: unknown, message = `expected ${expected}, got ${actual}`): void {
  if (!Object.is(actual, expected)) throw new Error(message);
}

export function fail(message = "failed"): never {
  throw new Error(message);
}

const assert: typeof ok & { ok: typeof ok; equal: typeof equal; fail: typeof fail } = Object.assign(
  ok.bind(null) as typeof ok,
  { ok, equal, fail },
);

export default assert;
