// Task lanes: the waiting tasks of a pool, in a quick lane and a slow lane. Clients take turns in each lane. They share the
// limit on waiting tasks, which applies to both lanes together.

import { ServerError } from "../errors.ts";
import type { ClientPaces } from "../queues/client-paces.ts";
import { FairQueue } from "../queues/fair-queue.ts";
import { QueueShares } from "../queues/queue-shares.ts";

export interface TaskLanesOptions {
  /** Maximum number of waiting tasks, and the name of this limit in errors. */
  readonly maxQueued: number;
  readonly maxQueuedName: string;
}

interface WaitingTask {
  readonly client: string;
  readonly reject: (error: Error) => void;
}

export class TaskLanes<Task extends WaitingTask> {
  readonly #options: TaskLanesOptions;
  readonly #quick = new FairQueue<Task>();
  readonly #slow = new FairQueue<Task>();
  /** Number of waiting tasks by client, in the quick and the slow queue together. */
  readonly #shares = new QueueShares();

  constructor(options: TaskLanesOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#quick.size + this.#slow.size;
  }

  get slowSize(): number {
    return this.#slow.size;
  }

  /**
   * Returns the error that rejects a new task of this client; null if the task may be queued. If the limit on waiting tasks is
   * reached, the new task may displace a task of another client.
   */
  refusalFor(client: string): ServerError | null {
    return this.#shares.hasRoomFor(client, 1, this.#freePlaces) ? null : this.#full("try again later");
  }

  /** If the limit on waiting tasks is reached, rejects the newest task of the client with the most waiting tasks. */
  makeRoomFor(client: string): void {
    const newestOf = (other: string) => this.#newestOf(other);
    for (const task of this.#shares.displacedBy(client, 1, this.#freePlaces, newestOf) ?? []) {
      this.remove(task);
      task.reject(
        this.#full("this client has the most of them, so a task of another client took its place; try again later"),
      );
    }
  }

  add(task: Task, isSlow: boolean): void {
    this.#lane(isSlow).add(task, false);
    this.#shares.add(task.client);
  }

  /** Puts a task back as the next task of its client. */
  putBack(task: Task, isSlow: boolean): void {
    this.#lane(isSlow).putBack(task);
    this.#shares.add(task.client);
  }

  /** Removes a task if it is waiting. */
  remove(task: Task): void {
    if (this.#quick.remove(task) || this.#slow.remove(task)) this.#shares.remove(task.client);
  }

  takeQuick(): Task | undefined {
    return this.#taken(this.#quick.take());
  }

  /**
   * Takes the next quick task of a trusted client, even if other clients are before it. If `onlyLongTrusted`, takes only a task
   * of a client that has been trusted for long (see longTrustShare in client-paces.ts).
   */
  takeTrusted(paces: ClientPaces, onlyLongTrusted: boolean): Task | undefined {
    return this.#taken(paces.takeTrusted(this.#quick, onlyLongTrusted));
  }

  takeSlow(): Task | undefined {
    return this.#taken(this.#slow.take());
  }

  /** Moves a client's waiting tasks from the queue of quick tasks to the queue of slow tasks. */
  moveToSlow(client: string): void {
    for (const task of [...this.#quick.newestOf(client)].reverse()) {
      this.#quick.remove(task);
      this.#slow.add(task, false);
    }
  }

  refuseAll(error: ServerError): void {
    for (const task of [...this.#quick, ...this.#slow]) {
      this.remove(task);
      task.reject(error);
    }
  }

  #lane(isSlow: boolean): FairQueue<Task> {
    return isSlow ? this.#slow : this.#quick;
  }

  #taken(task: Task | undefined): Task | undefined {
    if (task !== undefined) this.#shares.remove(task.client);
    return task;
  }

  *#newestOf(client: string): Generator<readonly Task[]> {
    for (const lane of [this.#slow, this.#quick]) for (const task of lane.newestOf(client)) yield [task];
  }

  get #freePlaces(): number {
    return this.#options.maxQueued - this.size;
  }

  #full(advice: string): ServerError {
    const { maxQueued, maxQueuedName } = this.#options;
    return new ServerError("queue_full", `${maxQueued} tasks are already waiting (${maxQueuedName}); ${advice}`);
  }
}
