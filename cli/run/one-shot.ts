// Owns one answer to one message, for scripts: the answer and nothing else on stdout, what it cost on stderr. Called by
// run.ts for `-i TEXT` and for text from a pipe.
import type { Inference } from "../../actors/api/inference.ts";
import type { GenerateRequest } from "../../engines/generation.ts";
import { fromErrorRecord } from "../../runtime/errors.ts";
import { streamAnswer, usageLine } from "./generation.ts";
import type { Output } from "./output.ts";

export interface OneShotOptions {
  readonly inference: Inference;
  readonly request: GenerateRequest;
  /** Interrupts the answer. */
  readonly signal: AbortSignal;
  readonly stdout: Output;
  readonly stderr: Output;
}

/** Throws the ServerError the answer failed with. What was said before is on stdout all the same. */
export async function answerOnce(options: OneShotOptions): Promise<void> {
  const { inference, request, signal, stdout, stderr } = options;
  const end = await streamAnswer(inference, request, AbortSignal.any([signal, stdout.gone]), {
    answer: (text) => stdout.write(text),
    thinking: async (text) => {
      // For somebody who watches; a script wants the answer.
      if (stderr.isTerminal) await stderr.write(text, (plain) => stderr.dim(plain));
    },
  });
  stderr.endLine();
  stdout.endLine();
  await stdout.flush();
  if (end.error !== null) throw fromErrorRecord(end.error);
  if (end.usage !== null) stderr.line(stderr.dim(usageLine(end.usage)));
}
