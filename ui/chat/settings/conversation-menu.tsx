// Menu of a conversation: its title and folder, export, deletion.
import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { Button } from "../../base/button.tsx";
import { Dialog } from "../../base/dialog.tsx";
import { t } from "../../base/language.ts";
import { notifyError } from "../../base/notice.tsx";
import { conversations, deleteConversation } from "../../conversations/library.ts";
import type { OpenConversation } from "../../conversations/open-conversation.ts";
import { exportJson, exportMarkdown, saveAs } from "../../conversations/transfer.ts";
import { startConversation } from "../current.ts";

const isOpen = signal(false);

export function ConversationMenu({ open }: { readonly open: OpenConversation }) {
  return (
    <>
      <Button icon="more" label={t("conversation")} onPress={() => (isOpen.value = true)} />
      {isOpen.value && <ConversationDialog open={open} />}
    </>
  );
}

function ConversationDialog({ open }: { readonly open: OpenConversation }) {
  const { id, title, folder } = open.conversation.value;
  const [isSure, setSure] = useState(false);
  const close = (): void => {
    isOpen.value = false;
  };
  const folders = [...new Set(conversations.value.map((one) => one.folder))].filter((name) => name !== "");
  const remove = (): void => {
    if (!isSure) {
      setSure(true);
      return;
    }
    open.stop();
    close();
    deleteConversation(id).then(startConversation).catch(notifyError);
  };
  return (
    <Dialog title={t("conversation")} onClose={close}>
      <label class="field">
        <span>{t("title")}</span>
        <input
          type="text"
          value={title}
          onChange={({ currentTarget }) => void open.rename(currentTarget.value, folder).catch(notifyError)}
        />
      </label>
      <label class="field">
        <span>{t("folder")}</span>
        <input
          type="text"
          list="folders"
          value={folder}
          // Unlike onChange, not called after each key, so the name may contain spaces.
          onChangeCapture={({ currentTarget }) =>
            void open.rename(title, currentTarget.value.trim()).catch(notifyError)
          }
        />
      </label>
      <datalist id="folders">
        {folders.map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
      <div class="actions">
        <button
          type="button"
          class="button"
          onClick={() =>
            void exportJson([id])
              .then((text) => saveAs(`${title}.json`, text))
              .catch(notifyError)
          }
        >
          {t("exportJson")}
        </button>
        <button
          type="button"
          class="button"
          onClick={() => saveAs(`${title}.md`, exportMarkdown(title, open.path.value))}
        >
          {t("exportMarkdown")}
        </button>
        <button type="button" class={isSure ? "button danger" : "button"} onClick={remove}>
          {isSure ? t("deleteReally") : t("delete")}
        </button>
      </div>
    </Dialog>
  );
}
