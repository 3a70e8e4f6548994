// Replica bus: questions and answers between replicas, over publish and subscribe. A question goes to one replica or to all
// others. Nothing is stored: a replica that does not run does not answer.
import { type ErrorRecord, fromErrorRecord, ServerError, toErrorRecord } from "../../errors.ts";
import type { RedisConnection } from "./redis-connection.ts";

/** Milliseconds to wait for answers. */
const ANSWER_MS = 5000;
/** Milliseconds between searches for replicas that will not answer; see `#leaveOutDead`. */
const DEAD_MS = 1000;
/** Maximum length of a message. */
const MOST_CHARACTERS = 4 * 2 ** 20;

/** Handles a question of another replica. Returns plain data; null: this replica has no answer. */
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

interface Pending {
  /** Number of replicas that will answer; null: not known yet. */
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
  readonly #isAlive: (replica: string) => Promise<boolean>;
  readonly #pending = new Map<number, Pending>();
  readonly #ends: (() => void)[];
  #last = 0;

  /** `isAlive`: whether a replica has its lease; may throw storage_unavailable. */
  constructor(
    connection: RedisConnection,
    replica: string,
    answer: AnswerQuestion,
    isAlive: (replica: string) => Promise<boolean>,
  ) {
    this.#connection = connection;
    this.#replica = replica;
    this.#answer = answer;
    this.#isAlive = isAlive;
    const receive = (text: string): void => this.#receive(text);
    this.#ends = [allChannel, channelOf(replica)].map((channel) => connection.subscribe(channel, receive));
  }

  /**
   * Asks a replica, or all others (`to` is null). Resolves to the answers that are not null, without those of replicas that do
   * not answer in time; with `isFirstEnough`, to the first. Throws the error of a replica if there is no answer,
   * storage_unavailable, also with `needsAll` if there is no answer because a replica that has its lease does not answer, and
   * invalid_value if the question is too long.
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
      // This replica receives its own question, and does not answer it.
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
    if (needsAll && !isComplete(pending)) {
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
   * Ends the wait if each replica that has not answered has lost its lease. Redis counts the subscriptions of a host that was
   * switched off until its connection times out, which takes minutes.
   */
  async #leaveOutDead(pending: Pending, to: string | null): Promise<void> {
    if (pending.expected === null) return;
    try {
      const pattern = channelOf(to ?? "*");
      const channels = (await this.#connection.command("PUBSUB", "CHANNELS", pattern)) as readonly Buffer[];
      const replicas = channels.map((channel) => String(channel).slice(channelOf("").length));
      const silent = replicas.filter((replica) => replica !== this.#replica && !pending.from.has(replica));
      const alive = await Promise.all(silent.map((replica) => this.#isAlive(replica)));
      if (alive.includes(true)) return;
      pending.expected = pending.from.size;
      settle(pending);
    } catch {
      // Redis is lost; then the question ends after ANSWER_MS.
    }
  }
}

/** Ends the wait if all replicas have answered, or the first answer is enough. */
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
