// Signals of `troupe run`: the first signal shuts down in order; a second signal exits immediately. In the REPL, SIGINT
// means ctrl-c.
import { ServerError } from "../../runtime/errors.ts";
import type { Repl } from "./repl.ts";

/** Receiver of signals and log lines. `repl` is set while the REPL is running. */
export interface Stage {
  repl: Repl | null;
}

/** Exit code of a command that was interrupted. */
export const interruptCode = 130;
const signalCodes = { SIGINT: interruptCode, SIGTERM: 143 };

export interface End {
  /** Aborted when the command must end. */
  readonly signal: AbortSignal;
  /** Ends the command with an exit code. The first call shuts down in order; the second call exits immediately. */
  stop(code: number): void;
}

/**
 * Returns an error handler. The handler returns null if the work was cancelled because the command ends, and rethrows other
 * errors.
 */
export function unlessEnded(signal: AbortSignal): (error: unknown) => null {
  return (error) => {
    if (signal.aborted && error instanceof ServerError && error.code === "cancelled") return null;
    throw error;
  };
}

export function endOnSignals(stage: Stage): End {
  const end = new AbortController();
  const stop = (code: number): void => {
    if (end.signal.aborted) process.exit(code);
    process.exitCode = code;
    end.abort();
  };
  for (const [signal, code] of Object.entries(signalCodes)) {
    process.on(signal, () => {
      if (signal === "SIGINT" && stage.repl !== null && !end.signal.aborted) stage.repl.interrupt();
      else stop(code);
    });
  }
  return { signal: end.signal, stop };
}
