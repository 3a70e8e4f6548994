// Owns how a benchmark's result is kept: a Markdown file in bench/results/ that says when, where and on which commit.
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import os from "node:os";
import { fileURLToPath } from "node:url";

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
  const commit = execFileSync("git", ["rev-parse", "--short", "HEAD"], { encoding: "utf8" }).trim();
  const date = new Date().toISOString().slice(0, 16).replace("T", " ");
  const cpu = os.cpus()[0]?.model.trim() ?? "unknown CPU";
  return `${date} UTC, ${cpu}, ${os.availableParallelism()} cores, node ${process.versions.node}, commit ${commit}.`;
}
