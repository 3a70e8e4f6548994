// Content of an answer: its items in order (reasoning, text, tool calls), followed by the approvals and files of its tools.
import { useState } from "preact/hooks";
import { t } from "../base/language.ts";
import { duration } from "../base/times.ts";
import type { Answer } from "../conversations/records.ts";
import { Markdown } from "../markdown/markdown.tsx";
import type { OutputItem } from "../server/wire.ts";
import { ApprovalCard } from "./tools/approval-card.tsx";
import { Produced } from "./tools/produced-file.tsx";
import { isToolItem, PendingCalls, ToolItem } from "./tools/tool-item.tsx";

export function AnswerContent({ answer }: { readonly answer: Answer }) {
  const { output, activity, status, problem } = answer;
  const isRunning = status === "running";
  return (
    <div class="answer">
      {output.map((item, i) => (
        <Item key={i} item={item} answer={answer} isLast={i === output.length - 1} />
      ))}
      {isRunning && <PendingCalls answer={answer} />}
      {activity.map((one, i) =>
        one.kind === "approval" ? (
          <ApprovalCard key={i} answer={answer} approval={one.approval} />
        ) : one.kind === "file" ? (
          <Produced key={i} file={one.file} />
        ) : null,
      )}
      {isRunning && output.length === 0 && <p class="waiting">{t("waiting")}</p>}
      {status === "failed" && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
      {status === "incomplete" && <p class="problem">{t("incomplete", { reason: problem })}</p>}
      {status === "cancelled" && <p class="problem">{t("stopped")}</p>}
    </div>
  );
}

interface ItemProps {
  readonly item: OutputItem;
  readonly answer: Answer;
  readonly isLast: boolean;
}

function Item({ item, answer, isLast }: ItemProps) {
  const isGrowing = isLast && answer.status === "running";
  if (item.type === "reasoning") return <Reasoning item={item} answer={answer} isGrowing={isGrowing} />;
  if (item.type === "message") {
    const parts = item.content ?? [];
    return (
      <>
        {parts.map((part, k) => (
          <Markdown key={k} text={part.text ?? part.refusal ?? ""} isGrowing={isGrowing && k === parts.length - 1} />
        ))}
        <Sources parts={parts} />
      </>
    );
  }
  return isToolItem(item) ? <ToolItem item={item} answer={answer} /> : null;
}

function Reasoning({
  item,
  answer,
  isGrowing,
}: {
  readonly item: OutputItem;
  readonly answer: Answer;
  readonly isGrowing: boolean;
}) {
  const [isOpen, setOpen] = useState(false);
  const text = (item.content ?? (item.summary as OutputItem["content"]) ?? [])
    .map((part) => part.text ?? "")
    .join("\n");
  const { reasoningMs } = answer;
  const title = isGrowing
    ? t("reasoning")
    : reasoningMs === null
      ? t("hasReasoned")
      : t("hasReasonedFor", { time: duration(reasoningMs) });
  return (
    <details class="reasoning" open={isOpen} onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
      <summary>{title}</summary>
      {isOpen && <Markdown text={text} isGrowing={isGrowing} />}
    </details>
  );
}

/** Shows the web pages that a text cites, without duplicates. */
function Sources({ parts }: { readonly parts: NonNullable<OutputItem["content"]> }) {
  const cited = parts.flatMap(({ annotations }) => annotations ?? []).filter(({ type }) => type === "url_citation");
  const pages = [...new Map(cited.map(({ url = "", title = "" }) => [url, title]))].filter(([url]) => isWeb(url));
  if (pages.length === 0) return null;
  return (
    <ol class="sources" aria-label={t("sources")}>
      {pages.map(([url, title]) => (
        <li key={url}>
          <a href={url} target="_blank" rel="noopener noreferrer nofollow">
            {title === "" ? url : title}
          </a>
        </li>
      ))}
    </ol>
  );
}

function isWeb(url: string): boolean {
  return /^https?:\/\//i.test(url);
}
