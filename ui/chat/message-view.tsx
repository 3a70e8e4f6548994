// Message: its content, and buttons for actions on it. Answers of several models are shown side by side.
import { memo } from "preact/compat";
import { useState } from "preact/hooks";
import { Button } from "../base/button.tsx";
import { copyText } from "../base/clipboard.ts";
import { t } from "../base/language.ts";
import { notify, notifyError } from "../base/notice.tsx";
import { bytes } from "../base/times.ts";
import type { OpenConversation } from "../conversations/open-conversation.ts";
import { type Answer, type Message, textOf, type UserMessage } from "../conversations/records.ts";
import { Markdown } from "../markdown/markdown.tsx";
import { shortName } from "../server/models.ts";
import { AnswerContent } from "./answer-content.tsx";
import { Editor } from "./editor.tsx";
import { LogprobView } from "./logprob-view.tsx";
import { Statistics } from "./statistics.tsx";

interface Props {
  readonly open: OpenConversation;
  readonly message: Message;
  readonly isLast: boolean;
}

export const MessageView = memo(function MessageView({ open, message, isLast }: Props) {
  if (message.role === "user") return <Question open={open} message={message} />;
  const beside = open.beside(message);
  if (beside.length === 1) return <AnswerView open={open} message={message} isLast={isLast} />;
  return (
    <div class="side-by-side">
      {beside.map((answer) => (
        <AnswerView key={answer.id} open={open} message={answer} isLast={isLast && answer.id === message.id} />
      ))}
    </div>
  );
});

function Question({ open, message }: { readonly open: OpenConversation; readonly message: UserMessage }) {
  const [isEditing, setEditing] = useState(false);
  if (isEditing) {
    const save = (text: string): void => {
      setEditing(false);
      void open.editQuestion(message, text).catch(notifyError);
    };
    return <Editor text={message.text} label={t("editMessage")} onSave={save} onCancel={() => setEditing(false)} />;
  }
  return (
    <article class="message user" aria-label={t("you")}>
      {message.files.length > 0 && (
        <ul class="files">
          {message.files.map(({ id, name, bytes: size }) => (
            <li key={id}>
              {name} ({bytes(size)})
            </li>
          ))}
        </ul>
      )}
      <Markdown text={message.text} isGrowing={false} />
      <footer class="message-actions">
        <Branches open={open} message={message} />
        <Copy text={message.text} />
        <Button icon="edit" label={t("edit")} onPress={() => setEditing(true)} />
        <Delete open={open} message={message} />
      </footer>
    </article>
  );
}

function AnswerView({
  open,
  message,
  isLast,
}: {
  readonly open: OpenConversation;
  readonly message: Answer;
  readonly isLast: boolean;
}) {
  const answer = open.current(message) as Answer;
  const [view, setView] = useState<"text" | "edit" | "logprobs">("text");
  const isRunning = answer.status === "running";
  const hasLogprobs = answer.output.some(({ content }) => content?.some(({ logprobs }) => (logprobs ?? []).length > 0));
  const toggle = (wanted: "edit" | "logprobs"): void => setView(view === wanted ? "text" : wanted);
  const save = (text: string): void => {
    setView("text");
    void open.editAnswer(answer, text).catch(notifyError);
  };
  const isChosen = open.path.value.some(({ id }) => id === answer.id);
  return (
    <article class="message assistant" aria-label={answer.model} aria-busy={isRunning}>
      <header class="message-head">{shortName(answer.model)}</header>
      {view === "edit" ? (
        <Editor text={textOf(answer)} label={t("editMessage")} onSave={save} onCancel={() => setView("text")} />
      ) : view === "logprobs" ? (
        <LogprobView answer={answer} />
      ) : (
        <AnswerContent answer={answer} />
      )}
      {!isRunning && (
        <footer class="message-actions">
          <Branches open={open} message={answer} />
          <Copy text={textOf(answer)} />
          <Button icon="edit" label={t("edit")} onPress={() => toggle("edit")} />
          {answer.parent !== null && (
            <Button
              icon="retry"
              label={t("regenerate")}
              onPress={() => void open.answer(answer.parent as string).catch(notifyError)}
            />
          )}
          {isLast && answer.status !== "completed" && textOf(answer) !== "" && (
            <Button
              icon="play"
              label={t("continue")}
              onPress={() => void open.continueAnswer(answer).catch(notifyError)}
            />
          )}
          {hasLogprobs && (
            <Button
              icon="chart"
              label={t("logprobs")}
              isPressed={view === "logprobs"}
              onPress={() => toggle("logprobs")}
            />
          )}
          {!isChosen && (
            <Button icon="check" label={t("goOnWithThis")} onPress={() => void open.showBranch(answer.id)} />
          )}
          <Delete open={open} message={answer} />
          <Statistics answer={answer} />
        </footer>
      )}
    </article>
  );
}

function Branches({ open, message }: { readonly open: OpenConversation; readonly message: Message }) {
  const branches = open.siblings(message);
  if (branches.length < 2) return null;
  const index = branches.findIndex(({ id }) => id === message.id);
  const go = (step: number): void => {
    const next = branches[index + step];
    if (next !== undefined) void open.showBranch(next.id);
  };
  return (
    <span class="branches">
      <Button icon="previous" label={t("previousBranch")} isDisabled={index === 0} onPress={() => go(-1)} />
      <span>{t("branchOf", { index: index + 1, count: branches.length })}</span>
      <Button icon="next" label={t("nextBranch")} isDisabled={index === branches.length - 1} onPress={() => go(1)} />
    </span>
  );
}

function Copy({ text }: { readonly text: string }) {
  const copy = async (): Promise<void> => {
    try {
      await copyText(text);
      notify(t("copied"));
    } catch (error) {
      notifyError(error);
    }
  };
  return <Button icon="copy" label={t("copy")} onPress={() => void copy()} />;
}

/** Button that deletes a message and all messages below it, after a second press as confirmation. */
function Delete({ open, message }: { readonly open: OpenConversation; readonly message: Message }) {
  const [isSure, setSure] = useState(false);
  const press = (): void => {
    if (isSure) void open.deleteBranch(message.id).catch(notifyError);
    else setSure(true);
  };
  return (
    <span onBlurCapture={() => setSure(false)}>
      <Button
        icon="trash"
        kind={isSure ? "danger" : "plain"}
        label={isSure ? t("deleteReally") : t("delete")}
        isLabelled={isSure}
        onPress={press}
      />
    </span>
  );
}
