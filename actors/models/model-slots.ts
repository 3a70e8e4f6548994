// Owns which models may be in memory at the same time: so many seats, who sits, who waits for one in which order, and who
// has to get up. Shared by the lives of all models; what a model does with its seat is its own affair.
//
// Nobody waits in a circle: a model that sits is being loaded, which ends, or can be asked to leave, and leaves when its
// requests are answered. One at a time is asked, for the first in the queue.
export interface Resident {
  /** Requests in flight. */
  readonly inFlight: number;
  readonly lastUsedMs: number;
  /** It has been loaded, and evict() makes it leave. */
  readonly isEvictable: boolean;
  /** It is about to release its seat. */
  readonly isLeaving: boolean;
  /** Begins to leave; release() follows, and review() if it cannot be. */
  evict(): void;
  /** Nobody needs its seat any more: takes evict() back where it can be. */
  stay(): void;
}

interface Turn {
  readonly resident: Resident;
  readonly settle: (isSeated: boolean) => void;
}

export class ModelSlots {
  readonly #seats: number;
  readonly #seated = new Set<Resident>();
  readonly #queue: Turn[] = [];

  /** null = a seat for everybody. */
  constructor(seats: number | null) {
    this.#seats = seats ?? Number.POSITIVE_INFINITY;
  }

  /** Waits for a seat; false if giveUp() comes first. Who sits already keeps it. */
  async acquire(resident: Resident): Promise<boolean> {
    if (this.#seated.has(resident)) return true;
    return await new Promise<boolean>((settle) => {
      this.#queue.push({ resident, settle });
      this.review();
    });
  }

  /** It does not want a seat any more; nothing where it does not wait for one. */
  giveUp(resident: Resident): void {
    const at = this.#queue.findIndex((turn) => turn.resident === resident);
    if (at < 0) return;
    const [turn] = this.#queue.splice(at, 1);
    turn?.settle(false);
    this.#letStay();
  }

  /** It is out of memory. */
  release(resident: Resident): void {
    this.#seated.delete(resident);
    this.review();
  }

  /** Gives seats that are free to the first in the queue, and asks for one more if that was not enough. */
  review(): void {
    while (this.#queue.length > 0 && this.#seated.size < this.#seats) {
      const turn = this.#queue.shift() as Turn;
      this.#seated.add(turn.resident);
      turn.settle(true);
    }
    this.#letStay();
    if (this.#queue.length === 0) return;
    const seated = [...this.#seated];
    if (seated.some(({ isLeaving }) => isLeaving)) return;
    leastWanted(seated.filter(({ isEvictable }) => isEvictable))?.evict();
  }

  #letStay(): void {
    if (this.#queue.length > 0) return;
    for (const resident of this.#seated) resident.stay();
  }
}

/** The least recently used of those without a request in flight; of all where each has one. */
function leastWanted(residents: readonly Resident[]): Resident | undefined {
  return residents.toSorted(
    (a, b) => Number(a.inFlight > 0) - Number(b.inFlight > 0) || a.lastUsedMs - b.lastUsedMs,
  )[0];
}
