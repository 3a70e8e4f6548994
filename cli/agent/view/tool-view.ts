// Tool view: formats a tool call and its result as lines for a terminal.
import type { ApprovalRequest } from "../../../actors/api/agent/agents.ts";
import { sourceOf } from "../call-source.ts";
import { excerpt, visibleLine } from "./visible-text.ts";

/**
 * Maximum number of shown lines of a call, and of characters of a line. A longer call is cut, and the last line says
 * so.
 */
const CALL_LINES = 1000;
const CALL_WIDTH = 20_000;
/** Maximum number of shown lines at the beginning of an output, and at its end. */
const OUTPUT_LINES = 10;

type Fields = Readonly<Record<string, unknown>>;

/** Returns the lines of a call: code or commands and then the other arguments as JSON, or all arguments as JSON. `kind`: see sourceOf. */
export function callLines(kind: string, args: unknown): readonly string[] {
  const source = sourceOf(kind, args);
  if (source === null) return indented(typeof args === "string" ? args : JSON.stringify(args, null, 2), "  ", "  ");
  const { language, texts, rest } = source;
  const lines =
    language === "python"
      ? texts.flatMap((code) => indented(code, "  ", "  "))
      : texts.flatMap((command) => indented(command, "  $ ", "    "));
  return Object.keys(rest).length === 0 ? lines : [...lines, ...indented(JSON.stringify(rest), "  with ", "  ")];
}

function indented(text: string, first: string, others: string): readonly string[] {
  const lines = excerpt(text, { head: CALL_LINES / 2, tail: CALL_LINES / 2, width: CALL_WIDTH });
  const isWhole = lines.join("") === excerpt(text, wholeText).join("");
  const shown = isWhole
    ? lines
    : [...lines, "(this is not the whole call, which is too long to be shown; edit it to see it)"];
  return shown.map((line, i) => (i === 0 ? first : others) + line);
}

const wholeText = { head: Number.POSITIVE_INFINITY, tail: 0, width: Number.POSITIVE_INFINITY };

/** Returns the name of a tool for its user. */
export function toolTitle(kind: ApprovalRequest["tool"]["kind"] | string, name: string): string {
  if (kind === "code_execution") return "Python";
  if (kind === "shell") return "Shell";
  return visibleLine(name.replace(/^service_/, ""));
}

/** Returns the lines of a result: the beginning and the end of the outputs, and how the call ended. `width`: of the terminal. */
export function resultLines(data: Fields, width: number): readonly string[] {
  const limits = { head: OUTPUT_LINES, tail: OUTPUT_LINES, width: Math.max(20, width - 4) };
  const texts = [data.stdout, data.stderr, data.result, data.exception, data.content];
  const shown = texts.filter((text): text is string => typeof text === "string" && text.trim() !== "");
  return [...shown.flatMap((text) => excerpt(text, limits)).map((line) => `  ${line}`), `  ${endOf(data)}`];
}

function endOf({ status, exit_code: code }: Fields): string {
  if (status === "timeout") return "ended: the time limit was reached";
  if (status === "cancelled") return "cancelled";
  if (status === "denied") return "denied";
  if (typeof code === "number") return `exit code ${code}`;
  return status === "error" ? "failed" : "done";
}
