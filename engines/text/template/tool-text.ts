// Tool text: writes tools, calls and results as plain text, for models whose chat template does not support them. Calls
// are written in the model's tool-call format. No side effects.
import type { CallSyntax } from "../parse/tool-format.ts";
import type { ParsedMessage, TemplateTool } from "./template-messages.ts";

/** The parts of a conversation that must be written as plain text, because the template does not support them. */
export interface WrittenParts {
  readonly calls: boolean;
  readonly results: boolean;
}

/** Returns the text that describes the tools to the model. */
export function describeTools(tools: readonly TemplateTool[], syntax: CallSyntax, written: WrittenParts): string {
  const form = callText([{ name: "function-name", text: "{arguments as a JSON object}" }], syntax);
  const lines = tools.map((tool) => JSON.stringify(tool));
  return [
    "You can call functions where they help with the user's request. Each of these lines describes one in JSON:",
    `<tools>\n${lines.join("\n")}\n</tools>`,
    `To call a function, write its name and its arguments in exactly this form:\n${form}`,
    ...(written.results ? ["What it returns comes in the next message, inside <tool_response></tool_response>."] : []),
  ].join("\n\n");
}

/**
 * Returns the messages with calls written into the assistant's text and results converted to user messages. All
 * results of one turn are in one message.
 */
export function written(messages: readonly ParsedMessage[], parts: WrittenParts, syntax: CallSyntax): ParsedMessage[] {
  const all: ParsedMessage[] = [];
  let endsInResults = false;
  for (const message of messages) {
    const isResult = parts.results && message.role === "tool";
    const isUser = isResult || message.role === "user";
    const content = isResult ? `<tool_response>\n${message.content}\n</tool_response>` : message.content;
    const last = all.at(-1);
    if (isUser && endsInResults && last) all[all.length - 1] = { ...last, content: `${last.content}\n${content}` };
    else if (isResult) all.push({ role: "user", content });
    else all.push(parts.calls ? withCalls(message, syntax) : message);
    endsInResults = isUser && (isResult || endsInResults);
  }
  return all;
}

function withCalls(message: ParsedMessage, syntax: CallSyntax): ParsedMessage {
  const { toolCalls, ...rest } = message;
  if (toolCalls === undefined || toolCalls.length === 0) return message;
  const calls = callText(toolCalls, syntax);
  return { ...rest, content: rest.content === "" ? calls : `${rest.content}\n${calls}` };
}

function callText(calls: readonly { readonly name: string; readonly text: string }[], syntax: CallSyntax): string {
  const { open, close } = syntax;
  const between = syntax.between ?? `${close}\n${open}`;
  const all = calls.map(({ name, text }) => syntax.before(name) + text + syntax.after(name));
  return open + all.join(between) + close;
}
