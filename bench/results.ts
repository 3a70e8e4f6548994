// Result of a benchmark: a Markdown file in bench/results/ with date, machine and commit.
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { commit, date, machineLine } from "./machine.ts";

const folder = fileURLToPath(new URL("../../bench/results/", import.meta.url));

export interface Result {
  /** File name without extension. */
  readonly name: string;
  readonly title: string;
  /** Describes how the result was measured, in one or two sentences. */
  readonly method: string;
  readonly body: string;
}

/** Prints a result and, if `save` is set, writes it to a file. */
export function report(result: Result, save: boolean): void {
  const { name, title, method, body } = result;
  const text = `# ${title}\n\n${provenance()}\n\n${method}\n\n\`\`\`\n${body}\n\`\`\`\n`;
  process.stdout.write(text);
  if (save) writeFileSync(`${folder}${name}.md`, text);
}

function provenance(): string {
  return `${date()}, ${machineLine()}, commit ${commit()}.`;
}
