// MTP trail: the model's hidden states of a sequence's newest tokens, kept between steps. An MTP head is fed pairs of a
// state and the token after it. Until the next step, the token after the newest state is unknown or an unverified
// draft, so the newest states are kept. This class only stores them; mtp-feeder.ts feeds the heads.

/** Maximum number of states kept per sequence; older states are fed to the MTP heads immediately. */
export const trailLength = 32;

export class Trail {
  readonly width: number;
  /**
   * Position of the last token that was fed to the MTP head. The trail keeps `count` hidden states of the main model: that of this
   * token, and those of the later tokens, which the head has not got yet.
   */
  base = -1;
  count = 0;
  /**
   * States of the kept tokens. The state of the token at position base + i begins at i * width; its id is tokens[i].
   */
  readonly states: Float32Array;
  readonly tokens = new Int32Array(trailLength);

  constructor(width: number) {
    this.width = width;
    this.states = new Float32Array(trailLength * width);
  }

  /** Position after the last kept token. */
  get end(): number {
    return this.base + this.count;
  }

  /** Whether the trail has the state that is needed to feed the token at `position`. */
  reaches(position: number): boolean {
    return this.base < position && position <= this.end;
  }

  /** Drops the trail's tokens from `position` on, because they were replaced. */
  cut(position: number): void {
    this.count = position - this.base;
  }

  /**
   * Restarts the trail so that the token at `position` can be fed next. The state before it is unknown and set to zero.
   */
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

  /** Appends `count` tokens and their states, from index `from` of `tokens` and row `stateRow` of `states` on. */
  append(tokens: Int32Array, from: number, states: Float32Array, stateRow: number, count: number): void {
    const { width } = this;
    this.states.set(states.subarray(stateRow * width, (stateRow + count) * width), this.count * width);
    for (let i = 0; i < count; i++) this.tokens[this.count + i] = tokens[from + i] as number;
    this.count += count;
  }

  /** Keeps only the last token and its state, after all others have been fed. */
  keepLast(): void {
    const last = this.count - 1;
    this.states.copyWithin(0, last * this.width, this.count * this.width);
    this.tokens[0] = this.tokens[last] as number;
    this.base += last;
    this.count = 1;
  }
}
