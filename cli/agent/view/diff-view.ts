// Diff view: shows changed files on the terminal as unified diffs of a bounded size.
import { structuredPatch } from "diff";
import type { Output } from "../../run/output.ts";
import type { FileChange } from "./folder-changes.ts";
import { visible, visibleLine } from "./visible-text.ts";

/** Maximum total number of diff lines for one tool call. */
const MAX_LINES = 120;
/** Maximum number of changed files that are listed. */
const MAX_FILES = 20;
/** Time limit in ms for the comparison of two texts. */
const DIFF_MS = 300;
const CONTEXT_LINES = 2;

/** Returns the changes as lines: for each file, a line with its name, and its diff below. */
export function changeLines(
  changes: readonly FileChange[],
  width: number,
  style: Pick<Output, "dim" | "red" | "green">,
): string[] {
  const lines: string[] = [];
  for (const change of changes.slice(0, MAX_FILES)) {
    lines.push(`${change.kind} ${visibleLine(change.path)}`);
    const diff = diffOf(change);
    const room = Math.max(0, MAX_LINES - lines.length);
    const shown = diff.slice(0, room).map((line) => styled(line.slice(0, width), style));
    lines.push(...shown);
    if (diff.length > room) lines.push(style.dim(`  … ${diff.length - room} more lines of the diff …`));
  }
  if (changes.length > MAX_FILES) lines.push(style.dim(`… ${changes.length - MAX_FILES} more files …`));
  return lines;
}

/** Returns the lines of the diff. The list is empty for a deleted file, and for a file whose content is not known. */
function diffOf({ kind, path, before, after }: FileChange): readonly string[] {
  if (after === null || (before === null && kind === "changed")) return [];
  const patch = structuredPatch(path, path, before ?? "", after, "", "", { context: CONTEXT_LINES, timeout: DIFF_MS });
  if (patch === undefined) return ["  (the texts differ too much for a diff)"];
  return patch.hunks.flatMap((hunk) => [
    `  @@ line ${hunk.newStart} @@`,
    ...hunk.lines.map((line) => `  ${visible(line).replaceAll("\t", "    ")}`),
  ]);
}

function styled(line: string, style: Pick<Output, "dim" | "red" | "green">): string {
  if (line.startsWith("  +")) return style.green(line);
  if (line.startsWith("  -")) return style.red(line);
  return style.dim(line);
}
