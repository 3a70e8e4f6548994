// Random numbers of every draw: sfc32, small, quick and without known defects, seeded by splitmix64. One generator for
// each sequence, so a seed gives the same tokens whatever else runs. Not for secrets.

const WARM_UP = 12;

export class Random {
  #a: number;
  #b: number;
  #c: number;
  #counter = 1;

  /** The generator of `seed`, an integer of which 64 bits count. */
  constructor(seed: bigint) {
    const first = splitmix64(seed, 1n);
    this.#a = Number(first & 0xffffffffn) | 0;
    this.#b = Number(first >> 32n) | 0;
    this.#c = Number(splitmix64(seed, 2n) & 0xffffffffn) | 0;
    for (let i = 0; i < WARM_UP; i++) this.#word();
  }

  /** A uniform number, 0 <= u < 1, of 53 bits. */
  next(): number {
    return ((this.#word() >>> 5) * 2 ** 26 + (this.#word() >>> 6)) / 2 ** 53;
  }

  /** The result of next() after `ahead` more calls; the state does not change. */
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

/** The `nth` output of splitmix64 from `seed`. */
function splitmix64(seed: bigint, nth: bigint): bigint {
  let z = BigInt.asUintN(64, seed + nth * 0x9e3779b97f4a7c15n);
  z = BigInt.asUintN(64, (z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n);
  z = BigInt.asUintN(64, (z ^ (z >> 27n)) * 0x94d049bb133111ebn);
  return z ^ (z >> 31n);
}
