// Tool view: formats a tool call and its result as lines for a terminal.
import type { ApprovalRequest } from "../../../actors/api/agent/agents.ts";
import { sourceOf } from "../call-source.ts";
import { excerpt, visibleLine } from "./visible-text.ts";

/**
 * Maximum number of lines that are shown of a call, and of characters in a line. A longer call is cut, and a last line reports
 * the cut.
 */
const CALL_LINES = 1000;
const CALL_WIDTH = 20_000;
/** Number of lines that are shown from the beginning of an output, and from its end. */
const OUTPUT_LINES = 10;

type Fields = Readonly<Record<string, unknown>>;

/**
 * Returns the lines that show a call: its code or commands, then the other arguments as JSON. For a call without code or
 * commands, all arguments as JSON. `kind`: see sourceOf.
 */
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

/** Returns the name of a tool as the user sees it. */
export function toolTitle(kind: ApprovalRequest["tool"]["kind"] | string, name: string): string {
  if (kind === "code_execution") return "Python";
  if (kind === "shell") return "Shell";
  return visibleLine(name.replace(/^service_/, ""));
}

/**
 * Returns the lines that show a result: the beginning and the end of its outputs, and how the call ended. `width`: width of the
 * terminal in characters.
 */
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
