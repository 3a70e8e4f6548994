// Renderer: compiles a chat template once and runs it. If the template fails, it is run again with additional
// variables. Called by chat-template.ts and probe-capabilities.ts.
import { Template } from "@huggingface/jinja";
import { ServerError } from "../../../runtime/errors.ts";
import { boundValues } from "./jinja/bounded-values.ts";
import { withoutIntegerKeys } from "./jinja/integer-keys.ts";
import type { TemplateMessage, TemplateTool } from "./template-messages.ts";

boundValues();

export interface RendererTokens {
  readonly bos_token: string;
  readonly eos_token: string;
}

export class Renderer {
  readonly #template: Template;
  readonly #tokens: RendererTokens;

  /** Compiles the template. Throws ServerError `model_file_invalid` if it cannot be compiled. */
  constructor(source: string, tokens: RendererTokens) {
    this.#template = compile(source);
    this.#tokens = tokens;
  }

  /**
   * Returns the prompt. The prompt ends at the start of the assistant's next message, unless `variables` change its
   * end. Throws the template's error.
   */
  render(
    messages: readonly TemplateMessage[],
    tools: readonly TemplateTool[] = [],
    variables: Readonly<Record<string, unknown>> = {},
  ): string {
    const all = { ...this.#tokens, add_generation_prompt: true, ...variables, messages };
    const given = tools.length === 0 ? all : { ...all, tools };
    try {
      return this.#template.render(given);
    } catch (error) {
      for (const more of retries(tools)) {
        try {
          return this.#template.render({ ...all, ...more });
        } catch {
          // This error is ignored: the first error is thrown below, because it is the most informative one.
        }
      }
      throw error;
    }
  }
}

/**
 * Returns additional variables for further attempts, because some templates need them. Such templates loop over
 * tools and documents without a check that they exist, print the description of every parameter, expect tools as
 * text, or expect the date. The first attempt passes no additional variables, because other templates print a
 * preamble even for an empty list of tools.
 */
function retries(tools: readonly TemplateTool[]): object[] {
  const more = { documents: [], functions: JSON.stringify(tools, null, 4), datetime: today() };
  const listed = { ...more, tools };
  return tools.length === 0 ? [listed] : [listed, { ...more, tools: tools.map(described) }];
}

/** Returns the date without the time of day, because a time would make every prompt begin differently. */
function today(): string {
  return new Date().toUTCString().slice(0, "Thu, 01 Jan 1970".length);
}

/** Returns the tool with a description added to every parameter that has none. */
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
