// llguidance grammars: either a JSON object with a list of exactly one grammar, or Lark text with extensions. A field
// that cannot be translated is rejected with an error that names the field. Called by answer.ts. No side effects.
import { ServerError } from "../../../../runtime/errors.ts";

export type LlguidanceGrammar =
  | { readonly kind: "json_schema"; readonly schema: unknown }
  | { readonly kind: "lark"; readonly grammar: string };

const knownFields = ["json_schema", "lark_grammar", "name"];

export function readLlguidance(text: string): LlguidanceGrammar {
  if (!text.trimStart().startsWith("{")) return { kind: "lark", grammar: text };
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw refusal("invalid_value", "expected Lark text or a JSON object");
  }
  const { grammars, ...rest } = value as Readonly<Record<string, unknown>>;
  const other = Object.entries(rest).find(([, setting]) => setting !== null);
  if (other !== undefined) throw refusal("unsupported", `the field ${JSON.stringify(other[0])} is not supported`);
  if (!Array.isArray(grammars) || grammars.length === 0)
    throw refusal("invalid_value", 'expected "grammars", an array that is not empty');
  if (grammars.length > 1) throw refusal("unsupported", "more than one grammar is not supported");
  return only(grammars[0]);
}

function only(grammar: unknown): LlguidanceGrammar {
  if (typeof grammar !== "object" || grammar === null)
    throw refusal("invalid_value", "expected an object in grammars/0");
  const fields = Object.entries(grammar).filter(([, value]) => value !== null);
  const unknown = fields.find(([name]) => !knownFields.includes(name));
  if (unknown !== undefined) throw refusal("unsupported", `the field grammars/0/${unknown[0]} is not supported`);
  const { json_schema: schema, lark_grammar: lark } = Object.fromEntries(fields);
  if (schema !== undefined && lark === undefined) return { kind: "json_schema", schema };
  if (typeof lark === "string" && schema === undefined) return { kind: "lark", grammar: lark };
  throw refusal("invalid_value", "expected either json_schema or lark_grammar in grammars/0");
}

function refusal(code: "invalid_value" | "unsupported", message: string): ServerError {
  return new ServerError(code, `llguidance grammar: ${message}`);
}
