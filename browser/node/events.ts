// The part of node:events that the engine uses.

interface Emitter {
  once(name: string, listener: (value: unknown) => void): unknown;
}

export function once(emitter: Emitter, name: string): Promise<[unknown]> {
  return new Promise((resolve) => emitter.once(name, (value) => resolve([value])));
}
