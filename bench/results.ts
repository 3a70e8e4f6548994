// Result of a benchmark: a Markdown file in bench/results/ with date, machine and commit.
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { commit, date, machineLine } from "./machine.ts";

const folder = fileURLToPath(new URL("../../bench/results/", import.meta.url));

export interface Result {
  /** Name of the file, without its ending. */
  readonly name: string;
  readonly title: string;
  /** How it was measured, in a sentence or two. */
  readonly method: string;
  readonly body: string;
}

/** Prints a result and, if asked to, writes it down. */
export function report(result: Result, save: boolean): void {
  const { name, title, method, body } = result;
  const text = `# ${title}\n\n${provenance()}\n\n${method}\n\n\`\`\`\n${body}\n\`\`\`\n`;
  process.stdout.write(text);
  if (save) writeFileSync(`${folder}${name}.md`, text);
}

function provenance(): string {
  return `${date()}, ${machineLine()}, commit ${commit()}.`;
}
