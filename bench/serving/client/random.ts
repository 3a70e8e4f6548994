// Random numbers of the load generator: the same seed gives the same prompts and arrivals on every machine.

/** Returns a generator of numbers in [0, 1), seeded with some integers. */
export function randomFrom(...seeds: readonly number[]): () => number {
  let state = 0;
  for (const seed of seeds) state = mix((state ^ seed) + 0x9e3779b9);
  return () => {
    state = (state + 0x9e3779b9) >>> 0;
    return mix(state) / 2 ** 32;
  };
}

/** Returns the start times of `count` requests, in ms: a Poisson process with `perSecond` arrivals per second. */
export function poissonArrivals(perSecond: number, count: number, random: () => number): number[] {
  let atMs = 0;
  return Array.from({ length: count }, () => {
    atMs += (-Math.log(1 - random()) / perSecond) * 1000;
    return atMs;
  });
}

/** Mixes the bits of a 32-bit number so that each input bit affects all output bits. */
function mix(value: number): number {
  let bits = value >>> 0;
  bits = Math.imul(bits ^ (bits >>> 16), 0x21f0aaad) >>> 0;
  bits = Math.imul(bits ^ (bits >>> 15), 0x735a2d97) >>> 0;
  return (bits ^ (bits >>> 15)) >>> 0;
}
