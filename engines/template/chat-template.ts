// Owns rendering a conversation into a prompt with the model's chat template, compiled once. What a template can take differs
// by family; a few test renders at construction find out, and messages are reshaped to fit. Called by the agents side.
import { Template } from "@huggingface/jinja";
import { ServerError } from "../../runtime/errors.ts";
import type { ChatMessage, TemplateArguments } from "../chat.ts";
import type { PromptText, Vocabulary } from "../tokenizer/vocabulary.ts";
import { chooseMarker, UserTextGuard } from "./user-text.ts";

/** What rendering needs of a vocabulary. */
export type TemplateVocabulary = Pick<
  Vocabulary,
  "bosToken" | "eosToken" | "tokenText" | "controlTokens" | "controlNamesIn"
>;

type TemplateContent = string | readonly { readonly type: "text"; readonly text: string }[];

interface TemplateMessage {
  readonly role: string;
  readonly content: TemplateContent;
  readonly name?: string;
}

// Templates compose control tokens from a role ("<|" + role + "|>"); these must stay as they are, any other is user text.
const knownRoles = new Set(["system", "developer", "user", "assistant", "tool", "function"]);

/** The texts around an answer's thinking. */
export interface ThinkingTags {
  readonly begin: string;
  readonly end: string;
}

const thinkingTags: readonly ThinkingTags[] = [
  { begin: "<think>", end: "</think>" },
  { begin: "<thinking>", end: "</thinking>" },
  { begin: "<thought>", end: "</thought>" },
  { begin: "<reasoning>", end: "</reasoning>" },
  { begin: "<seed:think>", end: "</seed:think>" },
  { begin: "[THINK]", end: "[/THINK]" },
  { begin: "<|START_THINKING|>", end: "<|END_THINKING|>" },
];

const probe = "probe5731";

export class ChatTemplate {
  /** What the model thinks between; null where the template knows of no thinking. */
  readonly thinking: ThinkingTags | null;
  private readonly source: string;
  private readonly template: Template;
  private readonly tokens: { readonly bos_token: string; readonly eos_token: string };
  private readonly guard: UserTextGuard;
  /** Content must be a list of parts; a string is lost or refused. */
  private readonly wantsParts: boolean;
  /** Where false, system text goes in front of the next user message. */
  private readonly takesSystem: boolean;
  /** Where false, the developer role becomes system. */
  private readonly takesDeveloper: boolean;
  /** It rendered the simplest conversation, so when it fails on another, the messages are at fault. */
  private readonly works: boolean;

  constructor(source: string, vocabulary: TemplateVocabulary) {
    this.source = source;
    this.thinking = thinkingTags.find(({ end }) => source.includes(end)) ?? null;
    this.template = compile(source);
    const text = (token: number | null) => (token === null ? "" : vocabulary.tokenText(token));
    this.tokens = { bos_token: text(vocabulary.bosToken), eos_token: text(vocabulary.eosToken) };
    this.guard = new UserTextGuard({
      names: vocabulary.controlTokens.map((token) => vocabulary.tokenText(token)),
      namesIn: (part) => vocabulary.controlNamesIn(part),
    });
    const takesText = this.shows([{ role: "user", content: probe }]);
    this.wantsParts = !takesText && this.shows([{ role: "user", content: parts(probe) }]);
    this.works = takesText || this.wantsParts;
    const withSystem = [
      { role: "system", content: probe },
      { role: "user", content: "hi" },
    ];
    this.takesSystem = this.shows(withSystem.map((message) => this.shape(message)));
    this.takesDeveloper = source.includes("developer");
  }

  /**
   * The prompt for the assistant's next message. Where the template has no system role, system text is put in front of the
   * user message that follows. Throws ServerError `invalid_value` with the template's own words when it refuses.
   */
  render(messages: readonly ChatMessage[], given: TemplateArguments): PromptText {
    const effort = given.reasoningEffort;
    const texts = messages.flatMap(({ role, content, name }) =>
      name === undefined ? [role, content] : [role, content, name],
    );
    const marker = chooseMarker(effort === undefined ? [this.source, ...texts] : [this.source, effort, ...texts]);
    const variables = {
      ...(given.enableThinking === undefined ? {} : { enable_thinking: given.enableThinking }),
      ...(effort === undefined ? {} : { reasoning_effort: this.guard.guard(effort, marker) }),
    };
    const shaped = this.fit(messages).map((message) => this.shape(this.guardMessage(message, marker)));
    try {
      return { text: this.renderShaped(shaped, variables), marker };
    } catch (error) {
      throw this.failure(error);
    }
  }

  /** The messages in the roles the template has. */
  private fit(messages: readonly ChatMessage[]): ChatMessage[] {
    const fitted: ChatMessage[] = [];
    const systemTexts: string[] = [];
    for (const message of messages) {
      const isSystem = message.role === "system" || (message.role === "developer" && !this.takesDeveloper);
      if (isSystem && !this.takesSystem) systemTexts.push(message.content);
      else if (isSystem) fitted.push({ ...message, role: "system" });
      else if (message.role === "user" && systemTexts.length > 0) {
        fitted.push({ ...message, content: [...systemTexts.splice(0), message.content].join("\n\n") });
      } else fitted.push(message);
    }
    if (systemTexts.length > 0) fitted.push({ role: "user", content: systemTexts.join("\n\n") });
    return fitted;
  }

  private guardMessage(message: ChatMessage, marker: string): ChatMessage {
    const guard = (text: string) => this.guard.guard(text, marker);
    const role = knownRoles.has(message.role) ? message.role : guard(message.role);
    const guarded = { role, content: guard(message.content) };
    return message.name === undefined ? guarded : { ...guarded, name: guard(message.name) };
  }

  private shape(message: ChatMessage): TemplateMessage {
    return this.wantsParts ? { ...message, content: parts(message.content) } : message;
  }

  private renderShaped(messages: readonly TemplateMessage[], variables: Record<string, unknown>): string {
    const all = { ...this.tokens, ...variables, messages, add_generation_prompt: true };
    try {
      return this.template.render(all);
    } catch (error) {
      // Some templates loop over tools and documents without asking whether there are any. Not given at once, because
      // others print a preamble for tools however few.
      try {
        return this.template.render({ ...all, tools: [], documents: [] });
      } catch {
        throw error;
      }
    }
  }

  private failure(error: unknown): ServerError {
    const reason = error instanceof Error ? error.message : String(error);
    const options = { param: "messages", cause: error };
    if (this.works)
      return new ServerError("invalid_value", `the model's chat template refused the messages: ${reason}`, options);
    const advice = "start the server with another one in chat_template";
    return new ServerError(
      "unsupported",
      `the model's chat template cannot be rendered: ${reason}; ${advice}`,
      options,
    );
  }

  private shows(messages: readonly TemplateMessage[]): boolean {
    try {
      return this.renderShaped(messages, {}).includes(probe);
    } catch {
      return false;
    }
  }
}

function parts(text: string): TemplateContent {
  return [{ type: "text", text }];
}

function compile(source: string): Template {
  try {
    return new Template(source);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new ServerError(
      "model_file_invalid",
      `the chat template cannot be compiled: ${reason}; pass a working one with chat_template`,
      { param: "chat_template", cause: error },
    );
  }
}
