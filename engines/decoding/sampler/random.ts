// Random number generator for sampling: sfc32, which is small, fast and without known defects, seeded by splitmix64.
// Each sequence has its own generator, so the tokens for a seed do not depend on other sequences. Not for cryptography.

const WARM_UP = 12;

export class Random {
  #a: number;
  #b: number;
  #c: number;
  #counter = 1;

  /** Creates the generator for a seed. Only the low 64 bits of `seed` count. */
  constructor(seed: bigint) {
    const first = splitmix64(seed, 1n);
    this.#a = Number(first & 0xffffffffn) | 0;
    this.#b = Number(first >> 32n) | 0;
    this.#c = Number(splitmix64(seed, 2n) & 0xffffffffn) | 0;
    for (let i = 0; i < WARM_UP; i++) this.#word();
  }

  /** Returns a uniform random number 0 <= u < 1 with 53 bits. */
  next(): number {
    return ((this.#word() >>> 5) * 2 ** 26 + (this.#word() >>> 6)) / 2 ** 53;
  }

  /** Returns the result that next() would give after `ahead` more calls. The state does not change. */
  peek(ahead: number): number {
    const [a, b, c, counter] = [this.#a, this.#b, this.#c, this.#counter];
    for (let i = 0; i < ahead; i++) this.next();
    const number = this.next();
    this.#a = a;
    this.#b = b;
    this.#c = c;
    this.#counter = counter;
    return number;
  }

  #word(): number {
    const word = (this.#a + this.#b + this.#counter) | 0;
    this.#counter = (this.#counter + 1) | 0;
    this.#a = this.#b ^ (this.#b >>> 9);
    this.#b = (this.#c + (this.#c << 3)) | 0;
    this.#c = (((this.#c << 21) | (this.#c >>> 11)) + word) | 0;
    return word;
  }
}

/** Returns the `nth` output of splitmix64 for `seed`. */
function splitmix64(seed: bigint, nth: bigint): bigint {
  let z = BigInt.asUintN(64, seed + nth * 0x9e3779b97f4a7c15n);
  z = BigInt.asUintN(64, (z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n);
  z = BigInt.asUintN(64, (z ^ (z >> 27n)) * 0x94d049bb133111ebn);
  return z ^ (z >> 31n);
}
