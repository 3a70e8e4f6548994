// Session link: connects a run with its session. It supplies the messages that earlier requests added, and stores the state after
// each result, so that a restarted server can continue from the last event that was sent.
import { randomUUID } from "node:crypto";
import type { ChatMessage, GenerateRequest, PromptChanges, SealedContent } from "../../engines/generation.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { AgentOptions } from "../api/agent/agents.ts";
import { messageDigest } from "../api/agent/message-digest.ts";
import type { MatchedSession, SessionHead, Sessions } from "../api/agent/sessions.ts";
import { failureText } from "../tools/failures.ts";
import { withoutRepeats } from "./cut-off-run.ts";

type Prompt = GenerateRequest["prompt"];

/** Result of a call whose run was cut off before its result was known. */
const INTERRUPTED = failureText("interrupted: the run ended before the result was known");

interface Linked {
  readonly id: string;
  readonly head: SessionHead | null;
  readonly splices: PromptChanges["splices"];
  /**
   * Id of the stored session from which the run's session takes over images, videos and files. Equal to `id`, or, if the run's
   * session is a branch, the id of the session from which it branches; null = the run's session is new.
   */
  readonly basedOn: string | null;
  /** Text so far of the answer that the run continues; null = the run begins a new answer. */
  readonly answer: string | null;
}

interface LinkOptions {
  readonly request: GenerateRequest;
  readonly agent: AgentOptions;
  /** Returns whether another run is using the session. */
  readonly isBusy: (sessionId: string) => boolean;
  /** Called with the id of the session in the same synchronous step as `isBusy`, so that no other run can claim the session in between. */
  readonly onSession: (sessionId: string) => void;
  /** After this signal is aborted, nothing is stored, because the session may have been deleted. */
  readonly signal: AbortSignal;
}

export class SessionLink {
  readonly #sessions: Sessions;
  readonly #request: GenerateRequest;
  readonly #signal: AbortSignal;
  readonly #digests: readonly string[];
  readonly #linked: Linked;
  /** Messages that the run has added to the chat. */
  readonly #added: ChatMessage[] = [];
  /** Images that are not stored yet. */
  #images: string[] = [];
  readonly files: string[] = [];
  #approvesAll: boolean;
  #basedOn: string | null;
  #saving: Promise<void> = Promise.resolve();

  private constructor(
    sessions: Sessions,
    request: GenerateRequest,
    signal: AbortSignal,
    digests: readonly string[],
    linked: Linked,
  ) {
    this.#sessions = sessions;
    this.#request = request;
    this.#signal = signal;
    this.#digests = digests;
    this.#linked = linked;
    this.#basedOn = linked.basedOn;
    this.#approvesAll = linked.head?.approvesAll ?? false;
  }

  /**
   * Finds the session that the request continues, or begins a new one. Throws invalid_value if the request continues an answer
   * that no session can continue.
   */
  static async open(sessions: Sessions, options: LinkOptions): Promise<SessionLink> {
    const { request, agent, signal, isBusy, onSession } = options;
    const { client } = request;
    const { sessionId, earlierCalls, digests } = agent;
    const earlier = sessionId === null ? earlierCalls.session : null;
    const ofCalls = earlier === null ? null : await sessions.match({ client, id: earlier, digests });
    const found = ofCalls ?? (await sessions.match({ client, id: sessionId, digests }));
    const answer = agent.continuesAnswer ? pausedAnswer(found, digests.length) : null;
    const isOther = ofCalls === null ? found !== null && !isWhole(found) : !hasLastCall(ofCalls, agent);
    const link = linkOf(found, sessionId, (id) => isOther || isBusy(id));
    onSession(link.id);
    const splices = withoutRepeats(link.splices, digests.length, request.prompt, earlierCalls.ids);
    return new SessionLink(sessions, request, signal, digests, { ...link, splices, answer });
  }

  get id(): string {
    return this.#linked.id;
  }

  /** Resolves when no state is being stored. Never rejects. */
  get saved(): Promise<void> {
    return this.#saving;
  }

  /** Number of requests of the session before this one. */
  get turn(): number {
    return this.#linked.head?.turns ?? 0;
  }

  /** Whether the user has approved all further actions of the session. */
  get approvesAll(): boolean {
    return this.#approvesAll;
  }

  /**
   * Records and stores at once that the user has approved all further actions, because the user may interrupt the run. `results`:
   * see `save`.
   */
  async approveAll(results: readonly ChatMessage[]): Promise<void> {
    if (this.#approvesAll) return;
    this.#approvesAll = true;
    await this.save(results, null);
  }

  /** Returns the changes to the request's messages for a round. After the first round, they include the messages of the run. */
  changes(notes: PromptChanges["notes"], isFirstRound: boolean): PromptChanges {
    const end = { at: this.#digests.length, remove: 0, messages: [...this.#added] };
    const { splices } = this.#linked;
    return { splices: isFirstRound ? splices : [...splices, end], notes, callsAreOptional: !isFirstRound };
  }

  /**
   * Copy of the request's prompt for one more generation. Sealed content must be copied, because its bytes are transferred to
   * another thread.
   */
  get prompt(): Prompt {
    const { prompt } = this.#request;
    return prompt.kind === "sealed" ? copied(prompt) : prompt;
  }

  /** Adds messages to the end of the chat. */
  add(...messages: readonly ChatMessage[]): void {
    this.#added.push(...messages);
  }

  addImages(images: readonly string[]): void {
    this.#images.push(...images);
  }

  /**
   * Stores the state so far; resolves when it is durable. `results`: results of the current round that are known. `visible`: the
   * assistant's message as the client sees it, if the run is complete; else null.
   */
  save(results: readonly ChatMessage[], visible: ChatMessage | null): Promise<void> {
    const added = [...this.#added, ...(visible === null ? allResults(this.#added.at(-1), results) : [])];
    const digests = visible === null ? this.#digests : this.#digestsWith(visible);
    // Updates are sent one after another, so that an older state never replaces a newer one.
    const saved = this.#saving.then(() => this.#update(added, digests));
    this.#saving = saved.catch(() => {});
    return saved;
  }

  async #update(added: readonly ChatMessage[], digests: readonly string[]): Promise<void> {
    if (this.#signal.aborted) return;
    const { id, splices, answer } = this.#linked;
    const images = [...this.#images];
    await this.#sessions.update({
      id,
      client: this.#request.client,
      turns: this.turn + 1,
      digests,
      prompt: this.prompt,
      splices,
      added,
      continuesAnswer: answer !== null,
      images,
      videos: [],
      files: [...this.files],
      approvesAll: this.#approvesAll,
      basedOn: this.#basedOn,
    });
    // The session has stored these images, so later updates add only newer ones.
    this.#images = this.#images.slice(images.length);
    this.#basedOn = id;
  }

  /**
   * Returns the digests of the conversation, including the run's answer. If the run continues an answer, that answer is digested
   * as a whole.
   */
  #digestsWith(visible: ChatMessage): readonly string[] {
    const { answer } = this.#linked;
    if (answer === null) return [...this.#digests, messageDigest(visible)];
    return [...this.#digests.slice(0, -1), messageDigest({ ...visible, content: answer + visible.content })];
  }
}

/**
 * Returns the session of the run: the found session, a branch of it, or a new session. `asked`: session id in the request; null =
 * the request names no session. `isTaken`: returns whether the session contains another conversation than the request or is used
 * by another run. If so, a request without a session id gets a branch with a new id.
 */
function linkOf(
  found: MatchedSession | null,
  asked: string | null,
  isTaken: (sessionId: string) => boolean,
): Omit<Linked, "answer"> {
  if (found === null) return { id: asked ?? newId(), head: null, splices: [], basedOn: null };
  const { head, common, splices } = found;
  if (asked !== null || !isTaken(head.id)) return { id: head.id, head, splices, basedOn: head.id };
  // A branch inherits neither the user's approval of all actions nor the messages of a run that was cut off.
  const own = splices.filter(({ at }) => at < common);
  return { id: newId(), head: { ...head, approvesAll: false }, splices: own, basedOn: head.id };
}

/** Returns whether the conversation contains all messages of the session. */
function isWhole({ head, common }: MatchedSession): boolean {
  return common === head.digests.length;
}

/**
 * Returns whether the conversation contains one of the session's latest tool calls: the calls of its most recent answer that has
 * calls. If so, the request continues the session.
 */
function hasLastCall({ lastCalls }: MatchedSession, { earlierCalls }: AgentOptions): boolean {
  return lastCalls.some((id) => earlierCalls.ids.includes(id));
}

/**
 * Returns the text of the incomplete answer at the end of a conversation of `count` messages. Throws invalid_value if that answer
 * does not end with the result of a call, because the model can continue only from there.
 */
function pausedAnswer(found: MatchedSession | null, count: number): string {
  const last = found?.splices.at(-1);
  const isPaused = last?.at === count - 1 && last.remove === 1 && last.messages.at(-1)?.role === "tool";
  if (isPaused) return last.messages.map(({ role, content }) => (role === "assistant" ? content : "")).join("");
  const message =
    "expected a message of the user or a tool result at the end, got a message of the assistant: with server tools, sessions " +
    "and files, it is continued only in its session and if it ended at a limit of tool rounds; send a user message after it";
  throw new ServerError("invalid_value", message, { param: "messages" });
}

/** Returns a result for each call of a message, in the order of the calls. A call without a known result is reported as interrupted. */
function allResults(calling: ChatMessage | undefined, known: readonly ChatMessage[]): readonly ChatMessage[] {
  return (calling?.toolCalls ?? []).map(
    ({ id, name }) =>
      known.find(({ toolCallId }) => toolCallId === id) ?? { role: "tool", content: INTERRUPTED, name, toolCallId: id },
  );
}

function newId(): string {
  return `sess_${randomUUID().replaceAll("-", "")}`;
}

function copied(content: SealedContent): SealedContent {
  return { ...content, bytes: content.bytes.slice() };
}
