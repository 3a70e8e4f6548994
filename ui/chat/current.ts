// Current conversation: the conversation that is shown, selected by the route.
import { effect, signal } from "@preact/signals";
import { isText, preference } from "../base/preference.ts";
import { route, show } from "../base/route.ts";
import { OpenConversation } from "../conversations/open-conversation.ts";
import type { ChatSettings } from "../conversations/records.ts";

/** Settings for a new conversation: those that the user changed last, in any conversation. */
const lastSettings = preference<Partial<ChatSettings>>(
  "settings",
  {},
  (value): value is Partial<ChatSettings> => typeof value === "object" && value !== null,
);
/** Unsent text of each conversation, by conversation id. The key "" is for a new conversation. */
const drafts = preference<Readonly<Record<string, string>>>(
  "drafts",
  {},
  (value): value is Record<string, string> =>
    typeof value === "object" && value !== null && Object.values(value).every(isText),
);

/** Conversation that is shown; null if no conversation has the id in the route. */
export const current = signal<OpenConversation | null>(OpenConversation.create(lastSettings.value));

/** Open conversations by id. A conversation that is no longer shown stays open while its answers run. */
const opened = new Map<string, OpenConversation>();
let wanted = "";

effect(() => {
  const { page, id } = route.value;
  if (page === "chat") void open(id);
});

export function startConversation(): void {
  show("chat");
  wanted = "";
  current.value = OpenConversation.create(lastSettings.value);
}

/** Registers a conversation that has got its first message, and shows its id in the URL. */
export function keepOpen(conversation: OpenConversation): void {
  const { id } = conversation.conversation.value;
  opened.set(id, conversation);
  wanted = id;
  show("chat", id, true);
}

export async function changeSettings(settings: Partial<ChatSettings>): Promise<void> {
  const { tools, model, others, temperature, topP, asksApproval, effort } = { ...lastSettings.value, ...settings };
  const kept = Object.entries({ tools, model, others, temperature, topP, asksApproval, effort });
  lastSettings.value = Object.fromEntries(kept.filter(([, value]) => value !== undefined));
  await current.value?.change(settings);
}

export function draftOf(id: string): string {
  return drafts.value[id] ?? "";
}

export function keepDraft(id: string, text: string): void {
  const { [id]: _before, ...others } = drafts.value;
  drafts.value = text === "" ? others : { ...others, [id]: text };
}

async function open(id: string): Promise<void> {
  if (id === wanted) return;
  wanted = id;
  for (const [key, one] of opened) {
    if (key === id || one.isRunning.value) continue;
    one.close();
    opened.delete(key);
  }
  const found =
    id === "" ? OpenConversation.create(lastSettings.value) : (opened.get(id) ?? (await OpenConversation.open(id)));
  if (wanted !== id) return;
  if (found !== null && id !== "") opened.set(id, found);
  current.value = found;
}
