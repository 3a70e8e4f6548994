// Approval card: a tool call that waits for the user's decision, with its arguments, which the user can edit.
import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { t } from "../../base/language.ts";
import { notifyError } from "../../base/notice.tsx";
import type { Answer } from "../../conversations/records.ts";
import { ask, ServerError } from "../../server/client.ts";
import type { Approval } from "../../server/wire.ts";

/** Decisions made in this page, by approval id. */
const decisions = signal<ReadonlyMap<string, "approve" | "deny">>(new Map());

interface Decision {
  readonly decision: "approve" | "deny";
  readonly message?: string;
  readonly remember_for_session?: true;
  readonly arguments?: unknown;
}

export function ApprovalCard({ answer, approval }: { readonly answer: Answer; readonly approval: Approval }) {
  const [source, setSource] = useState(sourceOf(approval.arguments));
  const [message, setMessage] = useState("");
  const [isOver, setOver] = useState(false);
  const decision = decisions.value.get(approval.approval_id) ?? null;
  const isDone = isOver || decision !== null || answer.status !== "running";
  const decide = async (body: Decision): Promise<void> => {
    setOver(true);
    try {
      await ask(`v1/agent/approvals/${approval.approval_id}`, { method: "POST", body });
      decisions.value = new Map(decisions.value).set(approval.approval_id, body.decision);
    } catch (error) {
      // Status 404: the decision has been made elsewhere.
      setOver(error instanceof ServerError && error.status === 404);
      notifyError(error);
    }
  };
  const approve = (remember: boolean): void => {
    const { field, text } = sourceOf(approval.arguments);
    let edited: Pick<Decision, "arguments"> = {};
    if (source.text !== text) {
      try {
        edited = { arguments: argumentsWith(approval.arguments, field, source.text) };
      } catch (error) {
        notifyError(error);
        return;
      }
    }
    void decide({ decision: "approve", ...(remember && { remember_for_session: true }), ...edited });
  };
  return (
    <section class="approval" aria-label={t("approval")}>
      <h4>
        {isDone ? t("approvalOver", { tool: approval.tool.label }) : t("approvalAsked", { tool: approval.tool.label })}
      </h4>
      <textarea
        aria-label={t("input")}
        spellcheck={false}
        rows={Math.min(16, source.text.split("\n").length + 1)}
        readOnly={isDone}
        value={source.text}
        onInput={({ currentTarget }) => setSource({ ...source, text: currentTarget.value })}
      />
      {!isDone && (
        <>
          <input
            type="text"
            aria-label={t("denyMessage")}
            placeholder={t("denyMessage")}
            value={message}
            onInput={({ currentTarget }) => setMessage(currentTarget.value)}
          />
          <div class="actions">
            <button type="button" class="button main" onClick={() => approve(false)}>
              {t("approve")}
            </button>
            <button type="button" class="button" onClick={() => approve(true)}>
              {t("approveSession")}
            </button>
            <button
              type="button"
              class="button danger"
              onClick={() => void decide({ decision: "deny", ...(message !== "" && { message }) })}
            >
              {t("deny")}
            </button>
          </div>
        </>
      )}
      {decision !== null && <p>{decision === "approve" ? t("approved") : t("denied")}</p>}
    </section>
  );
}

interface Source {
  /** Field of the arguments that the text contains; null: the text is the JSON of all arguments. */
  readonly field: "code" | "commands" | null;
  readonly text: string;
}

/** Returns the code or the commands as text if they are the only argument, otherwise all arguments as JSON. */
function sourceOf(args: unknown): Source {
  const fields = typeof args === "object" && args !== null ? Object.entries(args) : [];
  const [[name, value] = ["", null]] = fields;
  if (fields.length === 1 && name === "code" && typeof value === "string") return { field: "code", text: value };
  const isLines = Array.isArray(value) && value.every((one) => typeof one === "string" && !one.includes("\n"));
  if (fields.length === 1 && name === "commands" && isLines) return { field: "commands", text: value.join("\n") };
  return { field: null, text: JSON.stringify(args, null, 2) };
}

/** Returns the arguments with the edited text. Throws a SyntaxError if the text must be JSON and is not. */
function argumentsWith(args: unknown, field: Source["field"], text: string): unknown {
  if (field === null) return JSON.parse(text);
  const value = field === "code" ? text : text.split("\n").filter((line) => line.trim() !== "");
  return { ...(args as object), [field]: value };
}
