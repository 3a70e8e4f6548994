// Replica bus: sends questions to other replicas and receives their answers, over Redis publish/subscribe. A question is sent
// to one replica or to all others. Redis does not store the messages, so a replica that is not running does not answer.
import { type ErrorRecord, fromErrorRecord, ServerError, toErrorRecord } from "../../errors.ts";
import type { RedisConnection } from "./redis-connection.ts";

/** Maximum time in ms to wait for answers. */
const ANSWER_MS = 5000;
/** Interval in ms between checks whether the replicas that have not answered are dead; see `#leaveOutDead`. */
const DEAD_MS = 1000;
/**
 * Time in ms for which a replica that is subscribed but has no lease still counts as alive. The time begins when a question first
 * finds the replica without a lease. A replica also loses its lease if its connection for commands fails; it then needs up to
 * 11 s to connect again.
 */
const GONE_MS = 12_000;
/** Maximum length of a question in characters. */
const MOST_CHARACTERS = 4 * 2 ** 20;

/** Handles a question of another replica. Returns plain data; null if this replica has no answer. */
export type AnswerQuestion = (question: unknown) => Promise<unknown>;

type Message =
  | { readonly kind: "question"; readonly from: string; readonly number: number; readonly content: unknown }
  | {
      readonly kind: "answer";
      readonly from: string;
      readonly number: number;
      readonly value: unknown;
      readonly error: ErrorRecord | null;
    };

/** Leases of the replicas. Both functions may throw storage_unavailable. */
export interface Leases {
  /** Returns whether a replica holds its lease. */
  isAlive(replica: string): Promise<boolean>;
  /** Returns the replicas that hold their leases. */
  replicas(): Promise<readonly string[]>;
}

interface Pending {
  /** Number of replicas that received the question; null if not known yet. */
  expected: number | null;
  readonly answers: unknown[];
  error: ErrorRecord | null;
  /** Replicas that have answered. */
  readonly from: Set<string>;
  readonly isFirstEnough: boolean;
  readonly done: () => void;
}

export class ReplicaBus {
  readonly #connection: RedisConnection;
  readonly #replica: string;
  readonly #answer: AnswerQuestion;
  readonly #leases: Leases;
  readonly #goneMs: number;
  /** Replicas that were found subscribed but without a lease, and the time of the first find (performance.now()). */
  readonly #leaseless = new Map<string, number>();
  readonly #pending = new Map<number, Pending>();
  readonly #ends: (() => void)[];
  #last = 0;

  constructor(connection: RedisConnection, replica: string, answer: AnswerQuestion, leases: Leases, goneMs = GONE_MS) {
    this.#connection = connection;
    this.#replica = replica;
    this.#answer = answer;
    this.#leases = leases;
    this.#goneMs = goneMs;
    const receive = (text: string): void => this.#receive(text);
    this.#ends = [allChannel, channelOf(replica)].map((channel) => connection.subscribe(channel, receive));
  }

  /**
   * Sends a question to one replica, or to all others if `to` is null. Resolves to the non-null answers that arrive in time.
   * With `isFirstEnough`, resolves after the first non-null answer. If there is none, throws the error that a replica answered
   * with. With `needsAll`, throws storage_unavailable if there is no answer and a replica that holds its lease did not answer, or
   * did not receive the question.
   * Also throws storage_unavailable if Redis is lost, and invalid_value if the question is too long.
   */
  async ask(
    to: string | null,
    content: unknown,
    isFirstEnough: boolean,
    needsAll: boolean,
  ): Promise<readonly unknown[]> {
    const number = ++this.#last;
    const question: Message = { kind: "question", from: this.#replica, number, content };
    const text = JSON.stringify(question);
    if (text.length > MOST_CHARACTERS) {
      throw new ServerError("invalid_value", `expected at most ${MOST_CHARACTERS} characters for another replica`);
    }
    let timer: NodeJS.Timeout | undefined;
    const from = new Set<string>();
    const answered = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, ANSWER_MS);
      this.#pending.set(number, { expected: null, answers: [], error: null, from, isFirstEnough, done: resolve });
    });
    const pending = this.#pending.get(number) as Pending;
    const search = needsAll ? setInterval(() => void this.#leaveOutDead(pending, to), DEAD_MS) : undefined;
    try {
      const receivers = (await this.#connection.command(
        "PUBLISH",
        to === null ? allChannel : channelOf(to),
        text,
      )) as number;
      // PUBLISH also counts this replica, which receives its own question but does not answer it.
      pending.expected = to === null || to === this.#replica ? receivers - 1 : receivers;
      settle(pending);
      await answered;
    } finally {
      clearTimeout(timer);
      clearInterval(search);
      this.#pending.delete(number);
    }
    if (pending.answers.length > 0) return pending.answers;
    if (pending.error !== null) throw fromErrorRecord(pending.error);
    if (needsAll && (!isComplete(pending) || (to === null && (await this.#isAnyoneAway(pending))))) {
      throw new ServerError("storage_unavailable", "another replica does not answer now; try again soon");
    }
    return [];
  }

  close(): void {
    for (const end of this.#ends) end();
    for (const { done } of this.#pending.values()) done();
  }

  #receive(text: string): void {
    const message = JSON.parse(text) as Message;
    this.#leaseless.delete(message.from);
    if (message.kind === "question") {
      if (message.from !== this.#replica) void this.#reply(message);
      return;
    }
    const pending = this.#pending.get(message.number);
    if (pending === undefined) return;
    pending.from.add(message.from);
    if (message.error !== null) pending.error = message.error;
    else if (message.value !== null) pending.answers.push(message.value);
    settle(pending);
  }

  async #reply({ from, number, content }: Message & { kind: "question" }): Promise<void> {
    let [value, error]: [unknown, ErrorRecord | null] = [null, null];
    try {
      value = (await this.#answer(content)) ?? null;
    } catch (thrown) {
      error = toErrorRecord(thrown);
    }
    const answer: Message = { kind: "answer", from: this.#replica, number, value, error };
    await this.#connection.command("PUBLISH", channelOf(from), JSON.stringify(answer)).catch(() => {});
  }

  /**
   * Ends the wait if every replica that has not answered has been without a lease for long. Redis still counts a host that was
   * switched off as a subscriber until its connection times out, which takes minutes.
   */
  async #leaveOutDead(pending: Pending, to: string | null): Promise<void> {
    if (pending.expected === null) return;
    try {
      const pattern = channelOf(to ?? "*");
      const channels = (await this.#connection.command("PUBSUB", "CHANNELS", pattern)) as readonly Buffer[];
      const replicas = channels.map((channel) => String(channel).slice(channelOf("").length));
      const silent = replicas.filter((replica) => replica !== this.#replica && !pending.from.has(replica));
      for (const known of this.#leaseless.keys()) {
        if (to === null && !replicas.includes(known)) this.#leaseless.delete(known);
      }
      const gone = await Promise.all(silent.map((replica) => this.#isGone(replica)));
      if (gone.includes(false)) return;
      pending.expected = pending.from.size;
      settle(pending);
    } catch {
      // The connection to Redis is lost. The wait then ends after ANSWER_MS.
    }
  }

  /** Returns whether a replica holds its lease but did not receive the question, because its state thread is being restarted. */
  async #isAnyoneAway({ from }: Pending): Promise<boolean> {
    const replicas = await this.#leases.replicas();
    return replicas.some((replica) => replica !== this.#replica && !from.has(replica));
  }

  async #isGone(replica: string): Promise<boolean> {
    if (await this.#leases.isAlive(replica)) {
      this.#leaseless.delete(replica);
      return false;
    }
    const sinceMs = this.#leaseless.get(replica) ?? performance.now();
    this.#leaseless.set(replica, sinceMs);
    return performance.now() - sinceMs >= this.#goneMs;
  }
}

/** Ends the wait if all replicas have answered, or if one answer is enough and has arrived. */
function settle(pending: Pending): void {
  if (isComplete(pending) || (pending.isFirstEnough && pending.answers.length > 0)) pending.done();
}

function isComplete({ expected, from }: Pending): boolean {
  return expected !== null && from.size >= expected;
}

const allChannel = "{troupe}:replicas";

function channelOf(replica: string): string {
  return `{troupe}:replica:${replica}`;
}
