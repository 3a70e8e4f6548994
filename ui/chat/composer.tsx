// Composer: input field for the next message, the attached files, and the buttons to send and to stop.
import { useEffect, useRef, useState } from "preact/hooks";
import { Button } from "../base/button.tsx";
import { t } from "../base/language.ts";
import { notifyError } from "../base/notice.tsx";
import { bytes } from "../base/times.ts";
import type { OpenConversation } from "../conversations/open-conversation.ts";
import type { AttachedFile } from "../conversations/records.ts";
import { ask } from "../server/client.ts";
import { draftOf, keepDraft, keepOpen } from "./current.ts";
import { ToolChoice } from "./settings/tool-choice.tsx";

const mostRows = 12;

export function Composer({ open }: { readonly open: OpenConversation }) {
  const { id } = open.conversation.value;
  const draft = open.isEmpty ? "" : id;
  const [text, setText] = useState(draftOf(draft));
  const [files, setFiles] = useState<readonly AttachedFile[]>([]);
  const [uploads, setUploads] = useState(0);
  const [isOver, setOver] = useState(false);
  const field = useRef<HTMLTextAreaElement>(null);
  const chooser = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.focus(), []);

  const type = (value: string): void => {
    setText(value);
    keepDraft(draft, value);
  };
  const send = (): void => {
    if ((text.trim() === "" && files.length === 0) || uploads > 0 || open.isRunning.value) return;
    const isFirst = open.isEmpty;
    type("");
    setFiles([]);
    if (isFirst) keepOpen(open);
    open.send(text, files).catch(notifyError);
  };
  const upload = async (chosen: Iterable<File>): Promise<void> => {
    for (const file of chosen) {
      setUploads((count) => count + 1);
      try {
        const form = new FormData();
        form.set("purpose", "user_data");
        form.set("file", file);
        const { id: fileId } = await ask<{ readonly id: string }>("v1/files", { method: "POST", body: form });
        setFiles((before) => [...before, { id: fileId, name: file.name, bytes: file.size }]);
      } catch (error) {
        notifyError(error);
      } finally {
        setUploads((count) => count - 1);
      }
    }
  };
  const onKey = (event: KeyboardEvent): void => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  };
  const onPaste = (event: ClipboardEvent): void => {
    const pasted = [...(event.clipboardData?.files ?? [])];
    if (pasted.length === 0) return;
    event.preventDefault();
    void upload(pasted);
  };
  const onDrop = (event: DragEvent): void => {
    event.preventDefault();
    setOver(false);
    void upload([...(event.dataTransfer?.files ?? [])]);
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: files can also be chosen with the button
    <div
      class={isOver ? "composer over" : "composer"}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={onDrop}
    >
      {(files.length > 0 || uploads > 0) && (
        <ul class="files">
          {files.map((file) => (
            <li key={file.id}>
              {file.name} ({bytes(file.bytes)})
              <Button
                icon="close"
                label={t("removeFile", { name: file.name })}
                onPress={() => setFiles(files.filter((one) => one !== file))}
              />
            </li>
          ))}
          {uploads > 0 && <li>{t("uploading")}</li>}
        </ul>
      )}
      <textarea
        ref={field}
        id="message"
        aria-label={t("message")}
        placeholder={t("messageHint")}
        rows={Math.min(mostRows, text.split("\n").length)}
        value={text}
        onInput={({ currentTarget }) => type(currentTarget.value)}
        onKeyDown={onKey}
        onPaste={onPaste}
      />
      <div class="composer-actions">
        <input
          ref={chooser}
          type="file"
          multiple
          hidden
          onChange={({ currentTarget }) => {
            void upload([...(currentTarget.files ?? [])]);
            currentTarget.value = "";
          }}
        />
        <Button icon="attach" label={t("attach")} onPress={() => chooser.current?.click()} />
        <ToolChoice open={open} />
        <span class="space" />
        {open.isRunning.value ? (
          <Button icon="stop" kind="main" label={t("stop")} onPress={() => open.stop()} />
        ) : (
          <Button
            icon="send"
            kind="main"
            label={t("send")}
            isDisabled={(text.trim() === "" && files.length === 0) || uploads > 0}
            onPress={send}
          />
        )}
      </div>
    </div>
  );
}
