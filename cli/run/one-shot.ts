// One-shot mode, for `-i TEXT` and text from a pipe. Writes only the answer (or the agent's events as JSON) to stdout, and the
// token usage to stderr.
import type { Inference } from "../../actors/api/inference.ts";
import type { GenerateRequest } from "../../engines/generation.ts";
import { fromErrorRecord } from "../../runtime/errors.ts";
import type { TerminalAgent } from "../agent/terminal-agent.ts";
import { streamAnswer, usageLine } from "./generation.ts";
import type { Output } from "./output.ts";

export interface OneShotOptions {
  readonly inference: Pick<Inference, "generate">;
  readonly request: GenerateRequest;
  /** Interrupts the answer. */
  readonly signal: AbortSignal;
  readonly stdout: Output;
  readonly stderr: Output;
}

/** Writes one answer. If it fails, throws its ServerError; the text before the failure has been written to stdout. */
export async function answerOnce(options: OneShotOptions): Promise<void> {
  const { inference, request, signal, stdout, stderr } = options;
  const end = await streamAnswer(inference, request, AbortSignal.any([signal, stdout.gone]), {
    answer: (text) => stdout.write(text),
    thinking: async (text) => {
      // Reasoning is shown only on a terminal, because a script wants only the answer.
      if (stderr.isTerminal) await stderr.write(text, (plain) => stderr.dim(plain));
    },
  });
  stderr.endLine();
  stdout.endLine();
  await stdout.flush();
  if (end.error !== null) throw fromErrorRecord(end.error);
  if (end.usage !== null) stderr.line(stderr.dim(usageLine(end.usage)));
}

export interface EventsOptions extends Omit<OneShotOptions, "inference"> {
  readonly agent: TerminalAgent;
}

/** Runs the agent. The agent itself prints its events. Throws the ServerError of a run that fails. */
export async function printEvents({ agent, request, signal, stdout }: EventsOptions): Promise<void> {
  for await (const event of agent.events(request, AbortSignal.any([signal, stdout.gone]))) {
    if (event.type === "error") throw fromErrorRecord(event.error);
  }
  await stdout.flush();
}
