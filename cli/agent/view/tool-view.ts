// Tool view: what a call of a tool is going to run, and what came of it, as lines for a terminal.
import type { ApprovalRequest } from "../../../actors/api/agent/agents.ts";
import { excerpt, visible } from "./visible-text.ts";

/** Lines of a call that are shown, and characters of a line. A longer call is cut, which the last line says. */
const CALL_LINES = 1000;
const CALL_WIDTH = 20_000;
/** Lines of the output of a tool that are shown. */
const OUTPUT_LINES = 10;

type Fields = Readonly<Record<string, unknown>>;

/** Returns the lines of a call: its code or commands in full, or else its arguments as JSON. */
export function callLines(args: unknown): readonly string[] {
  const { code, commands } = fieldsOf(args);
  if (typeof code === "string") return indented(code, "  ", "  ");
  if (Array.isArray(commands)) return commands.flatMap((command) => indented(String(command), "  $ ", "    "));
  return indented(typeof args === "string" ? args : JSON.stringify(args, null, 2), "  ", "  ");
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
  return visible(name.replace(/^service_/, ""));
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

function fieldsOf(value: unknown): Fields {
  return typeof value === "object" && value !== null ? (value as Fields) : {};
}
