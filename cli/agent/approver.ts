// Approver: asks the user at the terminal whether a call may run.
import type { Agents, ApprovalDecision, ApprovalRequest } from "../../actors/api/agent/agents.ts";
import { toErrorRecord } from "../../runtime/errors.ts";
import type { Questions } from "../run/input/questions.ts";
import type { Output } from "../run/output.ts";
import { answerTo, questionOf, type ToolQuestion } from "./answer-question.ts";
import { editedArguments } from "./edit-call.ts";
import { callLines } from "./view/tool-view.ts";

const QUESTION = "run it? [y]es, [n]o, [a]lways, [e]dit; n TEXT tells the model why: ";
const MAX_MESSAGE = 4096;

type Choice = "yes" | "always" | "edit" | { readonly message: string | null };

export interface ApproverOptions {
  readonly agents: () => Pick<Agents, "decide">;
  readonly questions: () => Questions;
  readonly notes: Output;
}

export class Approver {
  readonly #options: ApproverOptions;
  /** Session whose calls all run. */
  #approvedSession: string | null = null;

  constructor(options: ApproverOptions) {
    this.#options = options;
  }

  /** Asks and decides. Returns whether the run goes on; false: the user interrupts it. */
  async decide(request: ApprovalRequest): Promise<boolean> {
    const question = questionOf(request);
    if (question !== null) return await this.#answer(request, question);
    if (request.session_id === this.#approvedSession) return this.#settle(request, approval(true));
    let args: unknown = request.arguments;
    for (;;) {
      const choice = await this.#choose();
      if (choice === null) return false;
      if (typeof choice === "object") return this.#settle(request, { ...denial, message: choice.message });
      if (choice !== "edit") {
        if (choice === "always") this.#approvedSession = request.session_id;
        const edited = args === request.arguments ? null : JSON.stringify(args);
        return this.#settle(request, approval(choice === "always", edited));
      }
      args = await this.#edited(args);
    }
  }

  /** Answers a question of a tool. Asks again while the data is not what the tool wants. */
  async #answer(request: ApprovalRequest, question: ToolQuestion): Promise<boolean> {
    const { notes, questions, agents } = this.#options;
    for (;;) {
      const answer = await answerTo(question, (text) => questions().ask(notes.bold(text)));
      if (answer === null) return false;
      if (answer === "declined") return this.#settle(request, denial);
      try {
        agents().decide(request.approval_id, { ...approval(false), content: answer });
        return true;
      } catch (error) {
        notes.line(notes.red(toErrorRecord(error).message));
      }
    }
  }

  /** Returns the user's choice; null: an interrupt. */
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

  async #edited(args: unknown): Promise<unknown> {
    const { notes, questions } = this.#options;
    try {
      const edited = await editedArguments(args, questions(), process.env);
      for (const line of callLines(edited)) notes.line(line);
      return edited;
    } catch (error) {
      notes.line(notes.red(toErrorRecord(error).message));
      return args;
    }
  }

  #settle({ approval_id: id }: ApprovalRequest, decision: ApprovalDecision): true {
    this.#options.agents().decide(id, decision);
    return true;
  }
}

/** Returns the choice that a line means; null: it means none. */
export function choiceOf(line: string): Choice | null {
  const [, word = "", text = ""] = /^\s*(\S+)\s*(.*)$/s.exec(line) ?? [];
  const message = text.trim().slice(0, MAX_MESSAGE);
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
