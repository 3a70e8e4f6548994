// Chat template: renders a conversation into a prompt. Templates differ in the messages and tools that they accept. So
// messages and tools are converted to a form that the template accepts, or to plain text if there is none. Called by text
// workers.
import { ServerError } from "../../../runtime/errors.ts";
import type { ChatMessage, TemplateArguments, ToolSpec } from "../../generation.ts";
import { chooseFormat } from "../parse/choose-format.ts";
import type { ThinkingTags, ToolFormat } from "../parse/tool-format.ts";
import type { PromptText, Vocabulary } from "../tokenizer/vocabulary.ts";
import {
  checkTools,
  clientTexts,
  comparedWords,
  guardMessage,
  guardTool,
  guardVariables,
  parsedMessage,
} from "./client-text.ts";
import { type ContinuedMessage, continuedMessage, cutAtEnd, withMarks } from "./continuation.ts";
import { probeCapabilities } from "./probe-capabilities.ts";
import { removedWords } from "./removed-words.ts";
import { Renderer } from "./renderer.ts";
import type { TemplateCapabilities } from "./template-capabilities.ts";
import {
  oneCallEach,
  type ParsedMessage,
  type TemplateMessage,
  type TemplateTool,
  templateMessages,
  templateTool,
  withNames,
} from "./template-messages.ts";
import { describeTools, type WrittenParts, written } from "./tool-text.ts";
import { chooseMarker, UserTextGuard } from "./user-text.ts";

/** The part of a vocabulary that rendering needs. */
export type TemplateVocabulary = Pick<
  Vocabulary,
  "bosToken" | "eosToken" | "tokenText" | "controlTokens" | "controlNamesIn"
>;

export interface RenderedPrompt extends PromptText {
  /**
   * True if the output starts with thinking: the prompt ends with the begin tag, or inside thinking that the output
   * continues.
   */
  readonly opensThinking: boolean;
  /** Character that replaces each image, video and audio part in the prompt; null = the messages have none. */
  readonly mediaMarker: string | null;
}

export class ChatTemplate {
  /** The tool-call format of the model. */
  readonly format: ToolFormat;
  /** The tags around the model's thinking; null if the template has no thinking. */
  readonly thinking: ThinkingTags | null;
  readonly capabilities: TemplateCapabilities;
  readonly #source: string;
  readonly #renderer: Renderer;
  readonly #guard: UserTextGuard;
  readonly #written: WrittenParts;
  readonly #words: ReadonlySet<string>;

  /**
   * `capabilities`: the results of an earlier probe; null: probe now. Throws ServerError `model_file_invalid` for a
   * template that cannot be compiled.
   */
  constructor(source: string, vocabulary: TemplateVocabulary, capabilities: TemplateCapabilities | null = null) {
    const text = (token: number | null) => (token === null ? "" : vocabulary.tokenText(token));
    this.#source = source;
    this.format = chooseFormat(source);
    this.thinking = this.format.thinking;
    this.#renderer = new Renderer(source, {
      bos_token: text(vocabulary.bosToken),
      eos_token: text(vocabulary.eosToken),
    });
    const control = {
      names: vocabulary.controlTokens.map((token) => vocabulary.tokenText(token)),
      namesIn: (part: string) => vocabulary.controlNamesIn(part),
    };
    this.#words = comparedWords(source, control.names);
    this.#guard = new UserTextGuard(control, removedWords(source));
    this.capabilities = capabilities ?? probeCapabilities(source, this.#renderer);
    this.#written = { calls: !this.capabilities.calls.shown, results: !this.capabilities.takesResults };
  }

  /**
   * Returns the prompt for the assistant's next message. If `continuesLast` is set, returns the prompt that ends inside
   * the last message, which is the assistant's. If the template rejects the messages, throws ServerError
   * `invalid_value` with the template's own message. Throws `unsupported` if the template does not even render the
   * simplest conversation.
   */
  render(
    messages: readonly ChatMessage[],
    { enableThinking, reasoningEffort, variables: others = {} }: TemplateArguments,
    tools: readonly ToolSpec[] = [],
    continuesLast = false,
  ): RenderedPrompt {
    checkTools(tools);
    const parsed = messages.map(parsedMessage);
    const continued = continuesLast ? continuedMessage(parsed.at(-1), this.thinking) : null;
    if (continued !== null) parsed[parsed.length - 1] = continued.message;
    const texts = [this.#source, reasoningEffort ?? "", JSON.stringify(others), ...clientTexts(parsed, tools)];
    const marker = chooseMarker(texts);
    const mediaMarker = messages.some(({ media }) => media !== undefined) ? chooseMarker([...texts, marker]) : null;
    if (mediaMarker !== null) for (const [i, one] of parsed.entries()) parsed[i] = withMediaMarks(one, mediaMarker);
    const guard = (text: string) => this.#guard.guard(text, marker);
    const offered = tools.map((tool) => templateTool(guardTool(tool, guard)));
    const guarded = parsed.map((message) => guardMessage(message, guard));
    const variables = {
      ...guardVariables(others, guard, this.#words),
      // Granite uses the name `thinking` for the same variable.
      ...(enableThinking === undefined ? {} : { enable_thinking: enableThinking, thinking: enableThinking }),
      ...(reasoningEffort === undefined ? {} : { reasoning_effort: guard(reasoningEffort) }),
    };
    if (continued === null) {
      const text = this.#rendered(guarded, offered, variables);
      return { text, marker, mediaMarker, opensThinking: this.#opensThinking(text) };
    }
    const used = [...texts, marker, mediaMarker ?? ""];
    const start = chooseMarker(used);
    const marks = { start, end: chooseMarker([...used, start]) };
    const last: ContinuedMessage = { message: guarded.at(-1) as ParsedMessage, part: continued.part };
    const open = [...guarded.slice(0, -1), withMarks(last, marks)];
    const text = this.#rendered(open, offered, {
      ...variables,
      add_generation_prompt: false,
      continue_final_message: true,
    });
    return { text: cutAtEnd(text, last, marks), marker, mediaMarker, opensThinking: last.part === "reasoning" };
  }

  #rendered(
    messages: readonly ParsedMessage[],
    tools: readonly TemplateTool[],
    variables: Readonly<Record<string, unknown>>,
  ): string {
    const { takesTools } = this.capabilities;
    const told = takesTools || tools.length === 0 ? messages : withSystemText(messages, this.#toolText(tools));
    try {
      return this.#renderer.render(this.#shaped(told), takesTools ? tools : [], variables);
    } catch (error) {
      throw this.#failure(error);
    }
  }

  /** True if the prompt ends with the begin tag of thinking, so that the output starts with thinking. */
  #opensThinking(text: string): boolean {
    return this.thinking !== null && text.trimEnd().endsWith(this.thinking.begin.trimEnd());
  }

  #toolText(tools: readonly TemplateTool[]): string {
    return describeTools(tools, this.format.syntax, this.#written);
  }

  #shaped(messages: readonly ParsedMessage[]): TemplateMessage[] {
    const capabilities = this.capabilities;
    const inRoles = withRoles(withNames(messages), capabilities);
    const { calls, results } = this.#written;
    const sayable = calls || results ? written(inRoles, this.#written, this.format.syntax) : inRoles;
    return templateMessages(capabilities.calls.several ? sayable : oneCallEach(sayable), capabilities);
  }

  #failure(error: unknown): ServerError {
    const reason = error instanceof Error ? error.message : String(error);
    const options = { param: "messages", cause: error };
    if (this.capabilities.works)
      return new ServerError("invalid_value", `the model's chat template refused the messages: ${reason}`, options);
    const advice = "start the server with another template in chat_template";
    return new ServerError(
      "unsupported",
      `the model's chat template cannot be rendered: ${reason}; ${advice}`,
      options,
    );
  }
}

/** Returns the message with the character `mark` inserted at the position of each image, video and audio part. */
function withMediaMarks(message: ParsedMessage, mark: string): ParsedMessage {
  const { content, media = [] } = message;
  let marked = "";
  let end = 0;
  for (const { at } of media) {
    marked += content.slice(end, at) + mark;
    end = at;
  }
  return { ...message, content: marked + content.slice(end) };
}

/**
 * Returns the messages with only those roles that the template supports. If the template has no system role, system
 * text is put in front of the next user message, or becomes a user message if none follows.
 */
function withRoles(
  messages: readonly ParsedMessage[],
  { takesSystem, takesDeveloper }: TemplateCapabilities,
): readonly ParsedMessage[] {
  const fitted: ParsedMessage[] = [];
  const systemTexts: string[] = [];
  for (const message of messages) {
    const isSystem = message.role === "system" || (message.role === "developer" && !takesDeveloper);
    if (isSystem && !takesSystem) systemTexts.push(message.content);
    else if (isSystem) fitted.push({ ...message, role: "system" });
    else if (message.role === "user" && systemTexts.length > 0) {
      fitted.push({ ...message, content: [...systemTexts.splice(0), message.content].join("\n\n") });
    } else fitted.push(message);
  }
  if (systemTexts.length > 0) fitted.push({ role: "user", content: systemTexts.join("\n\n") });
  return fitted;
}

/** Returns the messages with `text` appended to a leading system or developer message, else as a new system message. */
function withSystemText(messages: readonly ParsedMessage[], text: string): readonly ParsedMessage[] {
  const [first, ...others] = messages;
  if (first?.role !== "system" && first?.role !== "developer") return [{ role: "system", content: text }, ...messages];
  return [{ ...first, content: `${first.content}\n\n${text}` }, ...others];
}
