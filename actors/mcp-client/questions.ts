// Questions: the questions of MCP servers to users that have not been answered yet (MCP elicitation).
import type { ElicitRequestFormParams, ElicitResult } from "@modelcontextprotocol/client";
import type { McpReport } from "../api/agent/mcp.ts";
import type { ToolAnswer } from "../api/agent/questions.ts";

/** Maximum number of open questions, in total and per call. Further questions are declined. */
const MAX_WAITING = 256;
const MAX_WAITING_OF_CALL = 4;
/** Maximum number of characters of a question's text. */
const MAX_MESSAGE = 8192;

export class Questions {
  readonly #report: (report: McpReport) => void;
  readonly #waiting = new Map<number, (answer: ToolAnswer) => void>();
  readonly #waitingOf = new Map<string, number>();
  #next = 1;

  constructor(report: (report: McpReport) => void) {
    this.#report = report;
  }

  /** Asks the user of a call. Resolves to the answer, which is `cancel` if the signal is aborted. */
  async ask(
    call: string,
    serverName: string,
    { message, requestedSchema }: ElicitRequestFormParams,
    signal: AbortSignal,
  ): Promise<ElicitResult> {
    const ofCall = this.#waitingOf.get(call) ?? 0;
    if (signal.aborted || this.#waiting.size >= MAX_WAITING || ofCall >= MAX_WAITING_OF_CALL) {
      return { action: "decline" };
    }
    this.#waitingOf.set(call, ofCall + 1);
    const question = this.#next++;
    const answered = new Promise<ToolAnswer>((resolve) => {
      this.#waiting.set(question, resolve);
      signal.addEventListener("abort", () => resolve({ action: "cancel" }), { once: true });
    });
    const { properties, required = [] } = requestedSchema;
    const content = {
      label: `${serverName} asks`,
      message: message.slice(0, MAX_MESSAGE),
      schema: { properties, required },
    };
    this.#report({ type: "question", call, question, content });
    const answer = await answered;
    this.#waiting.delete(question);
    const left = (this.#waitingOf.get(call) ?? 1) - 1;
    if (left === 0) this.#waitingOf.delete(call);
    else this.#waitingOf.set(call, left);
    if (answer.action !== "accept") return { action: answer.action };
    const given = Object.entries(answer.content).map(([name, value]) => [
      name,
      Array.isArray(value) ? [...value] : value,
    ]);
    return { action: "accept", content: Object.fromEntries(given) };
  }

  answer(question: number, answer: ToolAnswer): void {
    this.#waiting.get(question)?.(answer);
  }
}
