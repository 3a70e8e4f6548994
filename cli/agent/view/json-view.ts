// JSON view: prints the events of a run for other programs, one JSON object per line. The objects have the same form as the
// server's events.
import type { AgentEvent } from "../../../actors/api/agent/agents.ts";
import { extensionEvent } from "../../../http/shared/agent/wire.ts";
import type { Output } from "../../run/output.ts";
import type { Approver } from "../approver.ts";
import type { RunControl, RunView } from "../terminal-agent.ts";
import { callLines, toolTitle } from "./tool-view.ts";

export interface JsonViewOptions {
  readonly answers: Output;
  readonly notes: Output;
  readonly approver: Approver;
}

export class JsonView implements RunView {
  readonly #options: JsonViewOptions;

  constructor(options: JsonViewOptions) {
    this.#options = options;
  }

  async begin(): Promise<void> {}

  async event(event: AgentEvent, run: RunControl): Promise<void> {
    const { answers, notes, approver } = this.#options;
    const body = jsonEvent(event);
    if (body !== null) await answers.write(`${JSON.stringify(body)}\n`);
    if (event.type !== "approval") return;
    const { tool, arguments: args } = event.request;
    notes.line(notes.bold(toolTitle(tool.kind, tool.label)));
    for (const line of callLines(tool.kind, args)) notes.line(line);
    await approver.decide(event.request, run);
  }
}

/** Returns the JSON form of an event; null if the event is not printed. */
function jsonEvent(event: AgentEvent): object | null {
  switch (event.type) {
    case "session":
      return { type: "session", session_id: event.id };
    case "text":
      return { type: "text_delta", text: event.text };
    case "reasoning":
      return { type: "reasoning_delta", text: event.text };
    case "tool_progress":
    case "approval":
    case "file": {
      const { name, body } = extensionEvent(event);
      return { type: name, ...body };
    }
    case "rounds_reached":
      return { type: "rounds_reached" };
    case "finish":
      return { type: "finish", reason: event.reason };
    case "done": {
      const { promptTokens, completionTokens } = event.usage;
      return { type: "done", usage: { prompt_tokens: promptTokens, completion_tokens: completionTokens } };
    }
    case "error":
      return { type: "error", error: { code: event.error.code, message: event.error.message } };
    default:
      return null;
  }
}
