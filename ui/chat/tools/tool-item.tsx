// Tool calls in an answer: the tool, the arguments and the result of each call.
import { useState } from "preact/hooks";
import { Icon } from "../../base/icon.tsx";
import { t } from "../../base/language.ts";
import type { TextKey } from "../../base/texts/en.ts";
import type { Activity, Answer } from "../../conversations/records.ts";
import type { OutputItem, ToolProgress } from "../../server/wire.ts";

const titles: Readonly<Record<string, TextKey>> = {
  code_interpreter_call: "ranCode",
  shell_call: "ranShell",
  web_search_call: "searchedWeb",
  mcp_call: "calledTool",
  function_call: "calledFunction",
};

export function isToolItem({ type }: OutputItem): boolean {
  return type in titles;
}

export function ToolItem({ item, answer }: { readonly item: OutputItem; readonly answer: Answer }) {
  const [isOpen, setOpen] = useState(false);
  const title = t(titles[item.type] ?? "calledTool", { name: nameOf(item) });
  const isRunning = item.status === "in_progress" || item.status === "interpreting" || item.status === "searching";
  return (
    <details class="tool" open={isOpen} onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
      <summary>
        <Icon name="tool" />
        <span>{title}</span>
        <code class="excerpt">{excerptOf(item)}</code>
        {item.status === "failed" && <span class="failed">{t("failed")}</span>}
        {isRunning && answer.status === "running" && <span class="spinner" role="img" aria-label={t("running")} />}
      </summary>
      {isOpen && <Details item={item} answer={answer} />}
    </details>
  );
}

/** Shows the running calls that have no output item yet. */
export function PendingCalls({ answer }: { readonly answer: Answer }) {
  return (
    <>
      {runningCalls(answer.activity).map(({ tool_name, data }, i) => (
        <p key={i} class="tool pending">
          <span class="spinner" role="img" aria-label={t("running")} />
          {t("callsTool", { name: tool_name })}
          {typeof data.progress === "number" && (
            <progress value={data.progress} {...(typeof data.total === "number" && { max: data.total })} />
          )}
        </p>
      ))}
    </>
  );
}

/**
 * Returns the latest event of each running call. The events do not name their call: calls of one tool in a round are told apart by
 * their arguments.
 */
function runningCalls(activity: readonly Activity[]): readonly ToolProgress[] {
  const open: ToolProgress[] = [];
  for (const one of activity) {
    if (one.kind !== "progress") continue;
    const { round, tool_name, phase, data } = one.progress;
    const isReport = phase === "calling" && typeof data.progress === "number";
    const args = JSON.stringify(data.arguments);
    const at = open.findIndex(
      (call) =>
        call.round === round &&
        call.tool_name === tool_name &&
        (!isReport || JSON.stringify(call.data.arguments) === args),
    );
    if (phase === "calling" && !isReport) open.push(one.progress);
    else if (at >= 0) open.splice(at, 1, ...(isReport ? [one.progress] : []));
  }
  return open;
}

function Details({ item, answer }: { readonly item: OutputItem; readonly answer: Answer }) {
  const result = item.type === "shell_call" ? shellOutput(item, answer) : resultOf(item);
  return (
    <div class="tool-details">
      <Section title={t("input")} text={inputOf(item)} />
      {result.text !== "" && <Section title={t("output")} text={result.text} />}
      {result.images.map((url, i) => (
        <img key={i} src={url} alt={t("figure", { number: i + 1 })} />
      ))}
    </div>
  );
}

function Section({ title, text }: { readonly title: string; readonly text: string }) {
  return (
    <section>
      <h4>{title}</h4>
      <pre tabIndex={0}>{text}</pre>
    </section>
  );
}

interface Result {
  readonly text: string;
  /** URLs of images. They are part of the answer's data, never addresses of other servers. */
  readonly images: readonly string[];
}

function nameOf(item: OutputItem): string {
  return String(item.name ?? item.server_label ?? "");
}

function inputOf(item: OutputItem): string {
  if (item.type === "code_interpreter_call") return String(item.code ?? "");
  if (item.type === "shell_call") return commandsOf(item).join("\n");
  if (item.type === "web_search_call") return JSON.stringify(item.action ?? {}, null, 2);
  return pretty(String(item.arguments ?? ""));
}

function excerptOf(item: OutputItem): string {
  const { action } = item as { readonly action?: { readonly query?: string; readonly url?: string } };
  const text = item.type === "web_search_call" ? (action?.query ?? action?.url ?? "") : inputOf(item);
  return text.replace(/\s+/g, " ").slice(0, 100);
}

function commandsOf(item: OutputItem): readonly string[] {
  return (item.action as { readonly commands?: readonly string[] } | undefined)?.commands ?? [];
}

function resultOf(item: OutputItem): Result {
  const outputs = (item.outputs ?? []) as readonly {
    readonly type: string;
    readonly logs?: string;
    readonly url?: string;
  }[];
  const held = item.agentic as { readonly result_content?: string | null } | null | undefined;
  const logs = outputs.flatMap(({ logs: text }) => (text === undefined ? [] : [text])).join("\n");
  const text = logs !== "" ? logs : typeof item.output === "string" ? item.output : pretty(held?.result_content ?? "");
  const images = outputs.flatMap(({ url }) => (url?.startsWith("data:image/") ? [url] : []));
  return { text, images };
}

function shellOutput(item: OutputItem, { output }: Answer): Result {
  const found = output.find(({ type, call_id }) => type === "shell_call_output" && call_id === item.call_id);
  const parts = (found?.output ?? []) as readonly { readonly stdout: string; readonly stderr: string }[];
  return { text: parts.map(({ stdout, stderr }) => stdout + stderr).join("\n"), images: [] };
}

function pretty(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
