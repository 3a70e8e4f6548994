// Progress of a download or load: a bar on a terminal, a few lines of text on any other output.
import cliProgress from "cli-progress";

/** Percentage points between two progress lines if the output is not a terminal. */
const lineStep = 25;

export interface Progress {
  /**
   * Shows the progress. `done` and `total` are in bytes, or `done` is a fraction and `total` is 1; `total` is null while it
   * is unknown.
   */
  update(label: string, done: number, total: number | null): void;
  stop(): void;
  /**
   * Aborted when the user ends the command. The download or conversion that is shown then stops, and the next start continues
   * it.
   */
  readonly signal?: AbortSignal | undefined;
}

/** Creates a progress display. A new label starts a new bar or line. */
export function createProgress(signal?: AbortSignal): Progress {
  const { stderr } = process;
  return { ...(stderr.isTTY ? createBar(stderr) : createLines((line) => stderr.write(`${line}\n`))), signal };
}

function createBar(stream: NodeJS.WriteStream): Progress {
  let current = "";
  let bar: cliProgress.SingleBar | null = null;
  const stop = () => {
    bar?.stop();
    bar = null;
  };
  return {
    update: (label, done, total) => {
      if (label !== current) stop();
      current = label;
      if (bar === null) {
        bar = new cliProgress.SingleBar({
          stream,
          format: `{label} [{bar}] {percentage} % {size}`,
          barCompleteChar: "=",
          barIncompleteChar: " ",
          hideCursor: true,
          gracefulExit: false,
        });
        bar.start(total ?? 1, 0, { label, size: "" });
      }
      // While the total is unknown, the bar stays empty and only the size changes.
      bar.setTotal(total ?? Math.max(1, done * 2));
      bar.update(total === null ? 0 : Math.min(done, total), { label, size: sizeText(done, total) });
    },
    stop,
  };
}

/** Creates a progress display that writes lines, one for each `lineStep` percentage points. */
export function createLines(write: (line: string) => void): Progress {
  let current = "";
  let next = 0;
  return {
    update: (label, done, total) => {
      if (label !== current) next = 0;
      current = label;
      const percent = total === null || total === 0 ? 0 : Math.floor((done / total) * 100);
      if (percent < next) return;
      next = percent - (percent % lineStep) + lineStep;
      write(`${label}: ${total === null ? sizeText(done, null) : `${percent} %`}`);
    },
    stop: () => undefined,
  };
}

/**
 * Returns the size in MB as text. Returns "" if the total is below 1 MB: it is then a count or the fraction 1, not a number
 * of bytes, and the bar alone shows the progress.
 */
function sizeText(done: number, total: number | null): string {
  const megabyte = 1e6;
  const shown = (bytes: number) => (bytes / megabyte).toFixed(bytes < 10 * megabyte ? 1 : 0);
  if (total === null) return `${shown(done)} MB`;
  return total < megabyte ? "" : `${shown(done)} of ${shown(total)} MB`;
}
