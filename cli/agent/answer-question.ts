// Questions of tools to the user of the terminal: an MCP server may ask for data (elicitation) while one of its tools runs.
import { z } from "zod";
import type { ApprovalRequest } from "../../actors/api/agent/agents.ts";
import type { AnswerValue } from "../../actors/api/agent/questions.ts";

const property = z.looseObject({
  type: z.string().optional(),
  title: z.string().optional(),
  description: z.string().optional(),
  enum: z.array(z.string()).optional(),
});

const question = z.object({
  message: z.string(),
  requested_schema: z.object({
    properties: z.record(z.string(), property),
    required: z.array(z.string()).optional(),
  }),
});

export type ToolQuestion = z.output<typeof question>;
type Property = z.output<typeof property>;
type Ask = (text: string) => Promise<string | null>;

/** Returns the question in an approval request; null if the request asks for the approval of a call. */
export function questionOf({ tool, arguments: args }: ApprovalRequest): ToolQuestion | null {
  if (tool.source !== "mcp" || tool.kind !== "external") return null;
  return question.safeParse(args).data ?? null;
}

/**
 * Asks the user for each value. Returns the data; `declined` if the user does not want to answer; null if the user interrupts
 * the run.
 */
export async function answerTo(
  { requested_schema: { properties, required = [] } }: ToolQuestion,
  ask: Ask,
): Promise<Readonly<Record<string, AnswerValue>> | "declined" | null> {
  const begins = await ask("answer it? [y]es, [n]o:");
  if (begins === null) return null;
  if (!/^y(?:es)?$/i.test(begins.trim())) return "declined";
  const answer: Record<string, AnswerValue> = {};
  for (const [name, wanted] of Object.entries(properties)) {
    const line = await ask(`${promptOf(name, wanted, required.includes(name))}:`);
    if (line === null) return null;
    if (line.trim() !== "") answer[name] = typedValue(line.trim(), wanted);
  }
  return answer;
}

function promptOf(
  name: string,
  { type = "string", title, description, enum: names }: Property,
  isRequired: boolean,
): string {
  const kind = names === undefined ? type : names.join(" | ");
  const notes = [kind, ...(isRequired ? [] : ["optional"]), ...(description === undefined ? [] : [description])];
  return `${title ?? name} (${notes.join("; ")})`;
}

/**
 * Converts a line to the type of the property. A line that does not fit the type is returned as text; the later check of the
 * answer reports it.
 */
function typedValue(line: string, { type }: Property): AnswerValue {
  if (type === "boolean") return /^(?:y|yes|true)$/i.test(line) ? true : /^(?:n|no|false)$/i.test(line) ? false : line;
  if (type === "array") return line.split(",").map((part) => part.trim());
  const isNumber = type === "number" || type === "integer";
  return isNumber && Number.isFinite(Number(line)) ? Number(line) : line;
}
