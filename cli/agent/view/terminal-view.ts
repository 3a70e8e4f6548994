// Terminal view: shows the calls of a run on the terminal, with their results and the files that they changed, and asks
// for approvals.
import type { AgentEvent } from "../../../actors/api/agent/agents.ts";
import { jsonOrText } from "../../../runtime/json-or-text.ts";
import type { Output } from "../../run/output.ts";
import type { Approver } from "../approver.ts";
import type { RunControl, RunView } from "../terminal-agent.ts";
import { changeLines } from "./diff-view.ts";
import type { FolderChanges } from "./folder-changes.ts";
import { callLines, resultLines, toolTitle } from "./tool-view.ts";
import { visible } from "./visible-text.ts";

export interface TerminalViewOptions {
  readonly answers: Output;
  readonly notes: Output;
  readonly approver: Approver;
  readonly changes: FolderChanges;
  readonly maxRounds: number;
}

type Progress = Extract<AgentEvent, { readonly type: "tool_progress" }>;
type Approval = Extract<AgentEvent, { readonly type: "approval" }>;

export class TerminalView implements RunView {
  readonly #options: TerminalViewOptions;
  /** Number of the last round whose calls were shown together with a question to the user. */
  #askedRound = -1;
  /** Calls of the run that have been shown. */
  readonly #shown = new Set<string>();
  #hasWarned = false;

  constructor(options: TerminalViewOptions) {
    this.#options = options;
  }

  async begin(): Promise<void> {
    this.#askedRound = -1;
    this.#shown.clear();
    await this.#options.changes.take();
    if (this.#options.changes.isTracked || this.#hasWarned) return;
    this.#hasWarned = true;
    const { notes } = this.#options;
    notes.line(notes.dim("the folder has too many files for changed ones to be shown"));
  }

  async event(event: AgentEvent, run: RunControl): Promise<void> {
    if (event.type === "approval") await this.#approve(event, run);
    else if (event.type === "rounds_reached") this.#line(this.#roundsNote());
    else if (event.type !== "tool_progress") return;
    else if (event.phase === "calling") this.#calling(event);
    else await this.#complete(event);
  }

  #roundsNote(): string {
    const { maxRounds } = this.#options;
    return `stopped: the limit of ${maxRounds} rounds of tool calls is reached; --max-tool-rounds sets it, and the next message continues`;
  }

  async #approve({ request }: Approval, run: RunControl): Promise<void> {
    const { tool, round, arguments: args } = request;
    this.#askedRound = round;
    this.#call(toolTitle(tool.kind, tool.label), tool.kind, args);
    await this.#options.approver.decide(request, run);
  }

  #calling({ round, index, call, toolType, data }: Progress): void {
    const key = `${round} ${index}`;
    const isShown = round === this.#askedRound || this.#shown.has(key);
    this.#shown.add(key);
    if (!isShown) this.#call(toolTitle(toolType, call.name), toolType, jsonOrText(call.arguments));
    if (typeof data.message === "string") this.#line(visible(data.message));
  }

  async #complete({ index, call, toolType, data }: Progress): Promise<void> {
    const { notes, changes } = this.#options;
    this.#heading(`${toolTitle(toolType, call.name)}, call ${index + 1}:`);
    for (const line of resultLines(data, notes.width)) notes.line(notes.dim(line));
    for (const line of changeLines(await changes.take(), notes.width, notes)) notes.line(line);
  }

  #call(title: string, kind: string, args: unknown): void {
    const { notes } = this.#options;
    this.#heading(title);
    for (const line of callLines(kind, args)) notes.line(line);
  }

  #heading(title: string): void {
    const { answers, notes } = this.#options;
    answers.endLine();
    notes.endLine();
    notes.line(notes.bold(title));
  }

  #line(text: string): void {
    const { answers, notes } = this.#options;
    answers.endLine();
    notes.endLine();
    notes.line(notes.dim(text));
  }
}
