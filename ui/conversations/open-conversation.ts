// Open conversation: a conversation with its messages, and the user's actions on them.
import { batch, computed, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import { withLock } from "../base/lock.ts";
import { notifyError } from "../base/notice.tsx";
import type { OutputItem } from "../server/wire.ts";
import { answerLock, runAnswer } from "./answering.ts";
import * as database from "./database.ts";
import { announce, announceStop, newConversation, onForeignMessage, storeConversation, take } from "./library.ts";
import {
  type Answer,
  type AttachedFile,
  type ChatSettings,
  type Conversation,
  type Message,
  newId,
  type UserMessage,
} from "./records.ts";
import { requestBody } from "./request.ts";
import { branchOf, type Children, childrenOf, leafBelow, leafIn, pathTo, siblingsOf } from "./tree.ts";

const titleLength = 60;

export class OpenConversation {
  readonly conversation: Signal<Conversation>;
  readonly #messages: Signal<ReadonlyMap<string, Message>>;
  readonly #children: ReadonlySignal<Children>;
  /** Messages of the branch that is shown, from the first to the last. */
  readonly path: ReadonlySignal<readonly Message[]>;
  /** Whether any answer of the conversation is running. */
  readonly isRunning: ReadonlySignal<boolean>;
  /** Running answers of this tab, by id. Only the view of the changed answer is rendered again. */
  readonly #live = new Map<string, Signal<Answer>>();
  readonly #stops = new Map<string, AbortController>();
  /** Ids of the running answers of other tabs that this tab takes over if their tab is closed. */
  readonly #awaited = new Set<string>();
  readonly #endWatch: () => void;

  private constructor(conversation: Conversation, messages: readonly Message[]) {
    const byId = new Map(messages.map((message) => [message.id, message]));
    this.conversation = signal({ ...conversation, leaf: leafIn(byId, conversation.leaf) });
    this.#messages = signal(byId);
    this.#children = computed(() => childrenOf(this.#messages.value));
    this.path = computed(() => pathTo(this.#messages.value, this.conversation.value.leaf));
    this.isRunning = computed(() => this.#running().length > 0);
    this.#endWatch = onForeignMessage(({ kind, conversation: id }) => {
      if (id !== conversation.id) return;
      if (kind === "stop") this.#stopOwn();
      else this.#refresh().catch(notifyError);
    });
  }

  /** Opens a stored conversation and resumes its running answers. Returns null if there is none with this id. */
  static async open(id: string): Promise<OpenConversation | null> {
    const conversation = await database.conversationBy(id);
    if (conversation === null) return null;
    const opened = new OpenConversation(conversation, await database.messagesOf(id));
    opened.#resume();
    return opened;
  }

  static create(settings: Partial<ChatSettings>): OpenConversation {
    return new OpenConversation(newConversation(settings), []);
  }

  /** Stops watching for changes in other tabs. Running answers continue. */
  close(): void {
    this.#endWatch();
  }

  get isEmpty(): boolean {
    return this.#messages.value.size === 0;
  }

  messageBy(id: string): Message | null {
    return this.#messages.value.get(id) ?? null;
  }

  /** Returns the current state of a message. For a running answer it includes the output that has arrived so far. */
  current(message: Message): Message {
    return this.#live.get(message.id)?.value ?? message;
  }

  siblings(message: Message): readonly Message[] {
    return siblingsOf(this.#children.value, message);
  }

  /** Returns the answers requested at the same time as a given answer, for example from several models. */
  beside(answer: Answer): readonly Answer[] {
    const others = this.siblings(answer).filter((one): one is Answer => one.role === "assistant");
    return others.filter(({ createdAt }) => createdAt === answer.createdAt);
  }

  async change(settings: Partial<ChatSettings>): Promise<void> {
    const { value } = this.conversation;
    this.conversation.value = { ...value, settings: { ...value.settings, ...settings } };
    if (!this.isEmpty) await storeConversation(this.conversation.value);
  }

  /** Adds a user message after `parent`, and requests answers from the models. */
  async send(text: string, files: readonly AttachedFile[], parent = this.conversation.value.leaf): Promise<void> {
    const { id: conversation, title } = this.conversation.value;
    const message: UserMessage = {
      ...{ id: newId(), conversation, parent, createdAt: Date.now() },
      ...{ role: "user", text, files },
    };
    const named = title === "" ? (text.trim().split("\n")[0] ?? "").slice(0, titleLength) : title;
    await this.#add([message], message.id, named === "" ? (files[0]?.name ?? "") : named);
    await this.answer(message.id);
  }

  /** Replaces a user message by a new branch with a different text. */
  async editQuestion(message: UserMessage, text: string): Promise<void> {
    await this.send(text, message.files, message.parent);
  }

  /** Replaces an answer by a new branch with the user's text. No model is involved. */
  async editAnswer(answer: Answer, text: string): Promise<void> {
    const item: OutputItem = {
      type: "message",
      role: "assistant",
      content: [{ type: "output_text", text, annotations: [] }],
    };
    const edited = this.#newAnswer(answer.parent, answer.model, Date.now());
    await this.#add([{ ...edited, output: [item], status: "completed", isEdited: true }], edited.id);
  }

  /** Requests answers to a message from the models. Existing answers are kept. */
  async answer(parent: string): Promise<void> {
    const { settings } = this.conversation.value;
    const now = Date.now();
    const models = [settings.model, ...settings.others];
    // The ids of answers requested together end with their index, because answers of the same time are sorted by id.
    const group = newId();
    const answers = models.map((model, i) => ({ ...this.#newAnswer(parent, model, now), id: `${group}.${i}` }));
    const path = pathTo(this.#messages.value, parent);
    let bodies: readonly object[];
    try {
      bodies = answers.map(({ model }) => requestBody(path, settings, model));
    } catch (error) {
      notifyError(error);
      return;
    }
    for (const answer of answers) this.#begin(answer);
    await this.#add(answers, (answers[0] as Answer).id);
    for (const [i, answer] of answers.entries()) void this.#run(answer, bodies[i] as object, false);
  }

  /** Continues an incomplete answer. */
  async continueAnswer(answer: Answer): Promise<void> {
    const path = pathTo(this.#messages.value, answer.id);
    const body = requestBody(path, this.conversation.value.settings, answer.model);
    const base = { output: answer.output, activity: answer.activity, continuedAt: Date.now() };
    const begun: Answer = {
      ...{ ...answer, base, status: "running", problem: "", responseId: "", sequence: -1 },
      ...{ usage: null, firstMs: null, lastMs: null },
    };
    this.#begin(begun);
    await this.#put(begun);
    void this.#run(begun, body, false);
  }

  /** Stops the running answers of the conversation, also those of other tabs. */
  stop(): void {
    this.#stopOwn();
    if (this.#running().some(({ id }) => !this.#stops.has(id))) announceStop(this.conversation.value.id);
  }

  /** Shows the branch that contains a message. */
  async showBranch(id: string): Promise<void> {
    await this.#store(leafBelow(this.#children.value, id));
  }

  /** Deletes a message and all messages below it. */
  async deleteBranch(id: string): Promise<void> {
    const gone = branchOf(this.#children.value, id);
    const parent = this.messageBy(id)?.parent ?? null;
    for (const one of gone) this.#stops.get(one)?.abort();
    const left = new Map([...this.#messages.value].filter(([one]) => !gone.has(one)));
    this.#messages.value = left;
    await database.removeMessages(gone);
    await this.#store(leafBelow(this.#children.value, parent));
  }

  async rename(title: string, folder: string): Promise<void> {
    this.conversation.value = { ...this.conversation.value, title, folder };
    await storeConversation(this.conversation.value);
  }

  #running(): readonly Answer[] {
    return [...this.#messages.value.values()].filter(
      (message): message is Answer => message.role === "assistant" && message.status === "running",
    );
  }

  #stopOwn(): void {
    for (const { id } of this.#running()) this.#stops.get(id)?.abort();
  }

  #newAnswer(parent: string | null, model: string, createdAt: number): Answer {
    return {
      ...{ id: newId(), conversation: this.conversation.value.id, parent, createdAt },
      ...{ role: "assistant", model, status: "running", problem: "", output: [], activity: [] },
      ...{ responseId: "", sequence: -1, session: "", usage: null },
      ...{ firstMs: null, lastMs: null, reasoningMs: null, base: null, isEdited: false },
    };
  }

  /** Registers an answer of this tab as running, before it is rendered. */
  #begin(answer: Answer): { readonly live: Signal<Answer>; readonly stop: AbortController } {
    const live = this.#live.get(answer.id) ?? signal(answer);
    const stop = this.#stops.get(answer.id) ?? new AbortController();
    this.#live.set(answer.id, live);
    this.#stops.set(answer.id, stop);
    return { live, stop };
  }

  async #run(answer: Answer, body: object | null, isWaiting: boolean): Promise<void> {
    const { live, stop } = this.#begin(answer);
    const onChange = (changed: Answer): void => {
      live.value = changed;
    };
    const onStore = async (changed: Answer): Promise<void> => {
      if (!this.#messages.value.has(changed.id)) return;
      await database.put({ messages: [changed] });
      announce(changed.conversation);
    };
    try {
      await runAnswer({ answer, body, onChange, onStore, signal: stop.signal }, isWaiting);
    } catch (error) {
      notifyError(error);
    } finally {
      this.#stops.delete(answer.id);
      this.#live.delete(answer.id);
      this.#show(live.value);
    }
  }

  /** Resumes running answers that another tab, or this page before a reload, has started. */
  #resume(): void {
    for (const answer of this.#running()) {
      const { id } = answer;
      if (this.#stops.has(id) || this.#awaited.has(id)) continue;
      this.#awaited.add(id);
      this.#takeOver(answer)
        .catch(notifyError)
        .finally(() => this.#awaited.delete(id));
    }
  }

  /** Waits until no other tab runs the answer. Resumes the answer unless it has ended by then. */
  async #takeOver(answer: Answer): Promise<void> {
    await withLock(answerLock(answer.id), async () => {});
    const stored = (await database.messagesOf(answer.conversation)).find(({ id }) => id === answer.id);
    if (stored?.role !== "assistant") return;
    if (stored.status === "running") this.#begin(stored);
    this.#show(stored);
    if (stored.status === "running") await this.#run(stored, null, true);
  }

  #show(message: Message): void {
    if (!this.#messages.value.has(message.id)) return;
    this.#messages.value = new Map(this.#messages.value).set(message.id, message);
  }

  async #put(message: Message): Promise<void> {
    this.#show(message);
    await database.put({ messages: [message] });
    announce(message.conversation);
  }

  async #add(messages: readonly Message[], leaf: string, title = this.conversation.value.title): Promise<void> {
    const all = new Map(this.#messages.value);
    for (const message of messages) all.set(message.id, message);
    const conversation = { ...this.conversation.value, title, leaf, updatedAt: Date.now() };
    batch(() => {
      this.#messages.value = all;
      this.conversation.value = conversation;
      take(conversation);
    });
    await database.put({ conversations: [conversation], messages });
    announce(conversation.id);
  }

  async #store(leaf: string | null): Promise<void> {
    const conversation = { ...this.conversation.value, leaf };
    this.conversation.value = conversation;
    await storeConversation(conversation);
  }

  /**
   * Reads the conversation again after a change in another tab. Answers that run in this tab are kept, unless the other tab has deleted
   * the message before them: they are stopped.
   */
  async #refresh(): Promise<void> {
    const before = this.#messages.value;
    const { id } = this.conversation.value;
    const conversation = await database.conversationBy(id);
    const messages = new Map((await database.messagesOf(id)).map((message) => [message.id, message]));
    // This tab has changed the conversation in the meantime, so what was read may lack its newest messages.
    if (this.#messages.value !== before) return await this.#refresh();
    const orphans: string[] = [];
    for (const answer of this.#running()) {
      const stop = this.#stops.get(answer.id);
      if (answer.parent !== null && !messages.has(answer.parent)) {
        stop?.abort();
        // This tab may have stored the answer after the other tab had deleted it.
        if (messages.delete(answer.id)) orphans.push(answer.id);
      } else if (stop !== undefined) messages.set(answer.id, answer);
    }
    const leaf = this.conversation.value.leaf ?? "";
    batch(() => {
      this.#messages.value = messages;
      // A deleted conversation stays open, without messages.
      const found = conversation ?? { ...this.conversation.value, title: "", leaf: null };
      this.conversation.value = { ...found, leaf: messages.has(leaf) ? leaf : leafIn(messages, found.leaf) };
    });
    if (orphans.length > 0) await database.removeMessages(orphans);
    this.#resume();
  }
}
