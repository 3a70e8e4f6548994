// Keyboard shortcuts of the page, and the dialog that lists them.
import { type Signal, signal } from "@preact/signals";
import { Button } from "./base/button.tsx";
import { copyText } from "./base/clipboard.ts";
import { Dialog } from "./base/dialog.tsx";
import { t } from "./base/language.ts";
import { notify, notifyError } from "./base/notice.tsx";
import { show } from "./base/route.ts";
import type { TextKey } from "./base/texts/en.ts";
import { showsSettings } from "./chat/chat-page.tsx";
import { current, startConversation } from "./chat/current.ts";
import { isOpen } from "./chat/side-bar.tsx";
import { type Answer, textOf } from "./conversations/records.ts";

interface Shortcut {
  /** Key with its modifiers. "mod" is Command on a Mac, otherwise Control. */
  readonly keys: string;
  readonly text: TextKey;
  readonly run: () => void;
}

const isMac = /Mac|iPhone|iPad/.test(navigator.userAgent);
const isListed = signal(false);

const shortcuts: readonly Shortcut[] = [
  { keys: "mod+Shift+O", text: "newConversation", run: () => toMessage(startConversation) },
  { keys: "mod+K", text: "search", run: toSearch },
  { keys: "Shift+Escape", text: "toMessage", run: () => toMessage(() => {}) },
  { keys: "mod+.", text: "stop", run: () => current.value?.stop() },
  { keys: "mod+Shift+Enter", text: "regenerate", run: regenerate },
  { keys: "mod+Shift+Y", text: "copyAnswer", run: copyAnswer },
  { keys: "mod+,", text: "settings", run: () => toggle(showsSettings) },
  { keys: "mod+Shift+S", text: "sideBar", run: () => toggle(isOpen) },
  { keys: "mod+/", text: "shortcuts", run: () => toggle(isListed) },
];

addEventListener("keydown", (event) => {
  if (event.isComposing) return;
  const pressed = shortcuts.find(({ keys }) => keys === keysOf(event));
  // Shortcuts do nothing while a dialog is open, except the one that closes the list of shortcuts.
  if (pressed === undefined || (document.querySelector("dialog[open]") !== null && pressed.text !== "shortcuts"))
    return;
  event.preventDefault();
  pressed.run();
});

export function Shortcuts() {
  if (!isListed.value) return null;
  return (
    <Dialog title={t("shortcuts")} onClose={() => (isListed.value = false)}>
      <dl class="shortcuts">
        {shortcuts.map(({ keys, text }) => (
          <div key={keys}>
            <dt>{t(text)}</dt>
            <dd>
              <kbd>{shown(keys)}</kbd>
            </dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}

export function ShortcutsButton() {
  return <Button icon="keyboard" label={t("shortcuts")} onPress={() => (isListed.value = true)} />;
}

function keysOf({ key, ctrlKey, metaKey, shiftKey, altKey }: KeyboardEvent): string {
  const hasMod = isMac ? metaKey : ctrlKey;
  const isPlain = !altKey && !(isMac ? ctrlKey : metaKey);
  const name = key.length === 1 ? key.toUpperCase() : key;
  return isPlain ? `${hasMod ? "mod+" : ""}${shiftKey && name !== "/" ? "Shift+" : ""}${name}` : "";
}

function shown(keys: string): string {
  return isMac ? keys.replace("mod+", "⌘").replace("Shift+", "⇧") : keys.replace("mod", "Ctrl");
}

/** Calls `first`, then moves the focus to the message field. */
function toMessage(first: () => void): void {
  if (current.value === null) show("chat");
  first();
  setTimeout(() => document.getElementById("message")?.focus());
}

function toSearch(): void {
  isOpen.value = true;
  setTimeout(() => document.getElementById("search")?.focus());
}

function toggle(isOn: Signal<boolean>): void {
  isOn.value = !isOn.value;
}

function lastAnswer(): Answer | null {
  const last = current.value?.path.value.at(-1);
  const shown = last && current.value?.current(last);
  return shown?.role === "assistant" ? shown : null;
}

function regenerate(): void {
  const parent = lastAnswer()?.parent ?? null;
  if (parent !== null && current.value?.isRunning.value === false) current.value.answer(parent).catch(notifyError);
}

function copyAnswer(): void {
  const answer = lastAnswer();
  if (answer === null) return;
  copyText(textOf(answer)).then(() => notify(t("copied")), notifyError);
}
