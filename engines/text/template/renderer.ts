// Owns running a chat template, compiled once: the variables it is given, and what it is given in addition when it fails
// without. Called by chat-template.ts and by the test renders of capabilities.ts.
import { Template } from "@huggingface/jinja";
import { ServerError } from "../../../runtime/errors.ts";
import { boundValues } from "./bounded-values.ts";
import { withoutIntegerKeys } from "./integer-keys.ts";
import type { TemplateMessage, TemplateTool } from "./template-messages.ts";

boundValues();

export interface RendererTokens {
  readonly bos_token: string;
  readonly eos_token: string;
}

export class Renderer {
  readonly #template: Template;
  readonly #tokens: RendererTokens;

  /** Throws ServerError `model_file_invalid` for a template that cannot be read. */
  constructor(source: string, tokens: RendererTokens) {
    this.#template = compile(source);
    this.#tokens = tokens;
  }

  /** The prompt for the assistant's next message. Throws what the template throws. */
  render(
    messages: readonly TemplateMessage[],
    tools: readonly TemplateTool[] = [],
    variables: Readonly<Record<string, unknown>> = {},
  ): string {
    const all = { ...this.#tokens, ...variables, messages, add_generation_prompt: true };
    const given = tools.length === 0 ? all : { ...all, tools };
    try {
      return this.#template.render(given);
    } catch (error) {
      for (const more of retries(tools)) {
        try {
          return this.#template.render({ ...all, ...more });
        } catch {
          // The first failure says most.
        }
      }
      throw error;
    }
  }
}

/**
 * Some templates loop over tools and documents without asking whether there are any, print the description of every
 * parameter, or want tools as text and the day. Not given at once, because others print a preamble for tools however few.
 */
function retries(tools: readonly TemplateTool[]): object[] {
  const more = { documents: [], functions: JSON.stringify(tools, null, 4), datetime: today() };
  const listed = { ...more, tools };
  return tools.length === 0 ? [listed] : [listed, { ...more, tools: tools.map(described) }];
}

/** No time of the day, with which no two prompts would begin alike. */
function today(): string {
  return new Date().toUTCString().slice(0, "Thu, 01 Jan 1970".length);
}

/** The tool with a description on every parameter. */
function described(tool: TemplateTool): TemplateTool {
  const { parameters } = tool.function;
  const { properties } = parameters;
  if (typeof properties !== "object" || properties === null) return tool;
  const all = Object.entries(properties).map(([name, schema]) => [
    name,
    typeof schema === "object" && schema !== null ? { description: "", ...schema } : schema,
  ]);
  return {
    ...tool,
    function: { ...tool.function, parameters: { ...parameters, properties: Object.fromEntries(all) } },
  };
}

function compile(source: string): Template {
  try {
    return new Template(withoutIntegerKeys(source));
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new ServerError(
      "model_file_invalid",
      `the chat template cannot be compiled: ${reason}; pass a working one with chat_template`,
      { param: "chat_template", cause: error },
    );
  }
}
