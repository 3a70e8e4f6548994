// Approver: asks the user at the terminal whether a call may run.
import type { Agents, ApprovalDecision, ApprovalRequest } from "../../actors/api/agent/agents.ts";
import { toErrorRecord } from "../../runtime/errors.ts";
import type { Questions } from "../run/input/questions.ts";
import type { Output } from "../run/output.ts";
import { answerTo, questionOf, type ToolQuestion } from "./answer-question.ts";
import { editedArguments } from "./edit-call.ts";
import type { RunControl } from "./terminal-agent.ts";
import { callLines } from "./view/tool-view.ts";
import { excerpt } from "./view/visible-text.ts";

const QUESTION = "run it? [y]es, [n]o, [a]lways, [e]dit; n TEXT tells the model why: ";

/** Maximum number of characters that are shown of a tool's question. */
const MAX_QUESTION = 500;

type Choice = "yes" | "always" | "edit" | { readonly message: string | null };

export interface ApproverOptions {
  readonly agents: () => Pick<Agents, "decide" | "pending">;
  readonly questions: () => Questions;
  readonly notes: Output;
}

export class Approver {
  readonly #options: ApproverOptions;

  constructor(options: ApproverOptions) {
    this.#options = options;
  }

  /** Asks the user and sends the decision to the agent loop. If the user interrupts, ends the run instead. */
  async decide(request: ApprovalRequest, run: RunControl): Promise<void> {
    const question = questionOf(request);
    if (question !== null) return await this.#answer(request, question, run);
    const { session_id: session, approval_id: id } = request;
    const agents = this.#options.agents();
    if (!agents.pending(session).some(({ approval_id }) => approval_id === id)) return;
    const decision = await this.#ask(request, run.signal);
    if (decision === null) return run.interrupt();
    agents.decide(id, decision);
    if (!decision.rememberForSession) return;
    // "Always" also approves the calls of this round that are already waiting. Approval is not requested for later calls.
    const others = agents.pending(session).filter((other) => questionOf(other) === null);
    for (const { approval_id } of others) agents.decide(approval_id, approval(true));
  }

  /** Returns the user's decision; null if the user interrupts. */
  async #ask(request: ApprovalRequest, signal: AbortSignal): Promise<ApprovalDecision | null> {
    let args: unknown = request.arguments;
    while (!signal.aborted) {
      const choice = await this.#choose();
      if (choice === null) return null;
      if (typeof choice === "object") return { ...denial, message: choice.message };
      const edited = JSON.stringify(args);
      const isChanged = edited !== JSON.stringify(request.arguments);
      if (choice !== "edit") return approval(choice === "always", isChanged ? edited : null);
      args = await this.#edited(request.tool.kind, args);
    }
    return null;
  }

  /** Passes a tool's question to the user, and the answer to the tool. Asks again until the data is valid. */
  async #answer(request: ApprovalRequest, question: ToolQuestion, run: RunControl): Promise<void> {
    const { notes, questions, agents } = this.#options;
    while (!run.signal.aborted) {
      const answer = await answerTo(question, (text) => questions().ask(notes.bold(oneLine(text))));
      if (answer === null) return run.interrupt();
      const decision = answer === "declined" ? denial : { ...approval(false), content: answer };
      try {
        return void agents().decide(request.approval_id, decision);
      } catch (error) {
        notes.line(notes.red(toErrorRecord(error).message));
      }
    }
  }

  /** Returns the user's choice; null if the user interrupts. */
  async #choose(): Promise<Choice | null> {
    const { notes, questions } = this.#options;
    for (;;) {
      const line = await questions().ask(notes.bold(QUESTION));
      if (line === null) return null;
      const choice = choiceOf(line);
      if (choice !== null) return choice;
      notes.line(notes.dim("expected y, n, n and a text, a or e"));
    }
  }

  async #edited(kind: string, args: unknown): Promise<unknown> {
    const { notes, questions } = this.#options;
    try {
      const edited = await editedArguments(kind, args, questions(), process.env);
      for (const line of callLines(kind, edited)) notes.line(line);
      return edited;
    } catch (error) {
      notes.line(notes.red(toErrorRecord(error).message));
      return args;
    }
  }
}

/** Returns a question of a tool as one line of bounded length. */
function oneLine(text: string): string {
  const [line = ""] = excerpt(text.replaceAll(/\s+/g, " "), { head: 1, tail: 0, width: MAX_QUESTION });
  return `${line} `;
}

/** Parses a typed line as a choice; null if it is not a valid choice. */
export function choiceOf(line: string): Choice | null {
  const [, word = "", text = ""] = /^\s*(\S+)\s*(.*)$/s.exec(line) ?? [];
  const message = text.trim();
  if (/^n(?:o)?$/i.test(word)) return { message: message === "" ? null : `Denied by the user: ${message}` };
  if (message !== "") return null;
  if (/^y(?:es)?$/i.test(word)) return "yes";
  if (/^a(?:lways)?$/i.test(word)) return "always";
  return /^e(?:dit)?$/i.test(word) ? "edit" : null;
}

const denial = { decision: "deny", message: null, rememberForSession: false, content: null, arguments: null } as const;

function approval(rememberForSession: boolean, edited: string | null = null): ApprovalDecision {
  return { decision: "approve", message: null, rememberForSession, content: null, arguments: edited };
}
