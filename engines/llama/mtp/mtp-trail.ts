// MTP trail: what one sequence remembers between its steps for MTP, the model's hidden states of its newest tokens. A
// head is fed pairs of a state and the token behind it, and the newest token is unknown, or not verified, until the
// next step. Pure bookkeeping; mtp-feeder.ts feeds.

/** Most states remembered per sequence; older ones are fed at once. */
export const trailLength = 32;

export class Trail {
  readonly width: number;
  /** Token `base` and those before it have been fed; the states of the `count` tokens from `base` on are remembered. */
  base = -1;
  count = 0;
  /** State of token base + i at i * width; its token id at i. */
  readonly states: Float32Array;
  readonly tokens = new Int32Array(trailLength);

  constructor(width: number) {
    this.width = width;
    this.states = new Float32Array(trailLength * width);
  }

  /** Position behind the last remembered token. */
  get end(): number {
    return this.base + this.count;
  }

  /** Whether the state that the token at `position` is fed with is remembered. */
  reaches(position: number): boolean {
    return this.base < position && position <= this.end;
  }

  /** Drops the trail from `position` on: those tokens were replaced. */
  cut(position: number): void {
    this.count = position - this.base;
  }

  /** Restarts the trail at the token at `position`. The state before it is unknown and taken as zero. */
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

  /** Appends `count` tokens and their states: rows of `states` from `stateRow` on. */
  append(tokens: Int32Array, from: number, states: Float32Array, stateRow: number, count: number): void {
    const { width } = this;
    this.states.set(states.subarray(stateRow * width, (stateRow + count) * width), this.count * width);
    for (let i = 0; i < count; i++) this.tokens[this.count + i] = tokens[from + i] as number;
    this.count += count;
  }

  /** Keeps only the last remembered token and its state: all others have been fed. */
  keepLast(): void {
    const last = this.count - 1;
    this.states.copyWithin(0, last * this.width, this.count * this.width);
    this.tokens[0] = this.tokens[last] as number;
    this.base += last;
    this.count = 1;
  }
}
