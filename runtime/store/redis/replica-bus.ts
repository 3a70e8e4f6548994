// Replica bus: questions and answers between replicas, over publish and subscribe. A question goes to one replica or to all
// others. Nothing is stored: a replica that does not run does not answer.
import { type ErrorRecord, fromErrorRecord, ServerError, toErrorRecord } from "../../errors.ts";
import type { RedisConnection } from "./redis-connection.ts";

/** Milliseconds to wait for answers. */
const ANSWER_MS = 5000;
/** Maximum length of a message. */
const MOST_CHARACTERS = 4 * 2 ** 20;

/** Handles a question of another replica. Returns plain data; null: this replica has no answer. */
export type AnswerQuestion = (question: unknown) => Promise<unknown>;

type Message =
  | { readonly kind: "question"; readonly from: string; readonly number: number; readonly content: unknown }
  | { readonly kind: "answer"; readonly number: number; readonly value: unknown; readonly error: ErrorRecord | null };

interface Pending {
  /** Number of replicas that will answer; null: not known yet. */
  expected: number | null;
  readonly answers: unknown[];
  error: ErrorRecord | null;
  count: number;
  readonly isFirstEnough: boolean;
  readonly done: () => void;
}

export class ReplicaBus {
  readonly #connection: RedisConnection;
  readonly #replica: string;
  readonly #answer: AnswerQuestion;
  readonly #pending = new Map<number, Pending>();
  readonly #ends: (() => void)[];
  #last = 0;

  constructor(connection: RedisConnection, replica: string, answer: AnswerQuestion) {
    this.#connection = connection;
    this.#replica = replica;
    this.#answer = answer;
    const receive = (text: string): void => this.#receive(text);
    this.#ends = [allChannel, channelOf(replica)].map((channel) => connection.subscribe(channel, receive));
  }

  /**
   * Asks a replica, or all others (`to` is null). Resolves to the answers that are not null, without those of replicas that do
   * not answer in time; with `isFirstEnough`, to the first. Throws the error of a replica if there is no answer,
   * storage_unavailable, also with `needsAll` if there is no answer because a replica does not answer, and invalid_value if the
   * question is too long.
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
    const answered = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, ANSWER_MS);
      this.#pending.set(number, { expected: null, answers: [], error: null, count: 0, isFirstEnough, done: resolve });
    });
    const pending = this.#pending.get(number) as Pending;
    try {
      const receivers = (await this.#connection.command(
        "PUBLISH",
        to === null ? allChannel : channelOf(to),
        text,
      )) as number;
      // This replica receives its own question to all, and does not answer it.
      pending.expected = to === null ? receivers - 1 : receivers;
      settle(pending);
      await answered;
    } finally {
      clearTimeout(timer);
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
    pending.count++;
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
    const answer: Message = { kind: "answer", number, value, error };
    await this.#connection.command("PUBLISH", channelOf(from), JSON.stringify(answer)).catch(() => {});
  }
}

/** Ends the wait if all replicas have answered, or the first answer is enough. */
function settle(pending: Pending): void {
  if (isComplete(pending) || (pending.isFirstEnough && pending.answers.length > 0)) pending.done();
}

function isComplete({ expected, count }: Pending): boolean {
  return expected !== null && count >= expected;
}

const allChannel = "{troupe}:replicas";

function channelOf(replica: string): string {
  return `{troupe}:replica:${replica}`;
}
