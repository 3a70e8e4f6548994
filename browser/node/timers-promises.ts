// The part of node:timers/promises that the engine uses.

function wait(ms: number): Promise<void> {
  return new Promise((resolve) => globalThis.setTimeout(resolve, ms));
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => globalThis.setImmediate(resolve));
}

export { nextTurn as setImmediate, wait as setTimeout };
