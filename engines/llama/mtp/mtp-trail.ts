// Owns what is remembered of one sequence between its steps for the prediction heads: the model's hidden states of its newest
// tokens. A head is fed pairs of a state and the token behind it, and the newest token is not known, or not verified, until
// the next step. Pure bookkeeping; mtp.ts feeds.

/** States remembered of a sequence; more are fed as soon as they are there. */
export const trailLength = 32;

export class Trail {
  readonly width: number;
  /** Token `base` and those before it have been fed; the states of the `count` tokens from `base` on are remembered. */
  base = -1;
  count = 0;
  /** State of token base + i at i * width; that token at i. */
  readonly states: Float32Array;
  readonly tokens = new Int32Array(trailLength);

  constructor(width: number) {
    this.width = width;
    this.states = new Float32Array(trailLength * width);
  }

  /** The token behind the last one remembered. */
  get end(): number {
    return this.base + this.count;
  }

  /** Whether the state is there that the token at `position` is fed with. */
  reaches(position: number): boolean {
    return this.base < position && position <= this.end;
  }

  /** Forgets what came behind the tokens before `position`: that was replaced. */
  cut(position: number): void {
    this.count = position - this.base;
  }

  /** Begins anew with the token at `position`: nobody knows the state before it, so it is taken to be zero. */
  begin(position: number): void {
    this.base = position - 1;
    this.count = 1;
    this.states.fill(0, 0, this.width);
  }

  forget(): void {
    this.base = -1;
    this.count = 0;
  }

  hasRoom(count: number): boolean {
    return this.count + count <= trailLength;
  }

  /** Remembers `count` tokens behind those there are, and their states: rows of `states`, the first being `stateRow`. */
  append(tokens: Int32Array, from: number, states: Float32Array, stateRow: number, count: number): void {
    const { width } = this;
    this.states.set(states.subarray(stateRow * width, (stateRow + count) * width), this.count * width);
    for (let i = 0; i < count; i++) this.tokens[this.count + i] = tokens[from + i] as number;
    this.count += count;
  }

  /** All but the last remembered token have been fed: it and its state are kept. */
  keepLast(): void {
    const last = this.count - 1;
    this.states.copyWithin(0, last * this.width, this.count * this.width);
    this.tokens[0] = this.tokens[last] as number;
    this.base += last;
    this.count = 1;
  }
}
