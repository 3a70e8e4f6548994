// Chat page: the thread of messages, the composer, and the settings panel.
import { signal } from "@preact/signals";
import { Button } from "../base/button.tsx";
import { t } from "../base/language.ts";
import { Composer } from "./composer.tsx";
import { current } from "./current.ts";
import { ConversationMenu } from "./settings/conversation-menu.tsx";
import { ModelChoice } from "./settings/model-choice.tsx";
import { SettingsPanel } from "./settings/settings-panel.tsx";
import { Thread } from "./thread.tsx";

/** Whether the settings panel is open. */
export const showsSettings = signal(false);

export function ChatPage() {
  const open = current.value;
  if (open === null) {
    return (
      <div class="page">
        <h1>{t("noConversation")}</h1>
        <p>{t("noConversationHelp")}</p>
      </div>
    );
  }
  const { id } = open.conversation.value;
  return (
    <div class="chat">
      <header class="bar">
        <ModelChoice open={open} />
        <span class="space" />
        {!open.isEmpty && <ConversationMenu open={open} />}
        <Button
          icon="settings"
          label={t("settings")}
          isPressed={showsSettings.value}
          onPress={() => {
            showsSettings.value = !showsSettings.value;
          }}
        />
      </header>
      <div class="chat-body">
        <div class="chat-column">
          <Thread key={id} open={open} />
          <Composer key={`composer ${id}`} open={open} />
        </div>
        {showsSettings.value && (
          <SettingsPanel key={`settings ${id}`} open={open} onClose={() => (showsSettings.value = false)} />
        )}
      </div>
    </div>
  );
}
