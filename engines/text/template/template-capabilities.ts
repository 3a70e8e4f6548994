// Template capabilities: the kinds of messages and tools that a chat template accepts. Data only; probe-capabilities.ts
// determines them.

/** Form in which a template accepts the tool calls of a message. */
export interface CallCapabilities {
  /** True if calls appear in the prompt. If false, calls are written as plain text. */
  readonly shown: boolean;
  /** True if arguments must be JSON text. If false, they are passed as the parsed value. */
  readonly textArguments: boolean;
  /** True if empty content must be null. */
  readonly nullContent: boolean;
  readonly ids: CallIds;
  /** True if all calls of a message appear in the prompt. */
  readonly several: boolean;
  /**
   * Handling of content in a message with calls: it appears (`together`), must be a separate message
   * (`apart`), or is missing (`lost`).
   */
  readonly besideContent: "together" | "apart" | "lost";
  /** True if a message may have calls, content and reasoning at the same time. */
  readonly withThoughts: boolean;
}

/**
 * Required form of call ids. `any`: no requirement. `short`: nine letters and digits. `naming`: functions.NAME:COUNT,
 * because the prompt contains the tool's name only in the id.
 */
export type CallIds = "any" | "short" | "naming";

export interface TemplateCapabilities {
  /**
   * True if the template renders the simplest conversation. If it then fails on another
   * conversation, the messages are the cause.
   */
  readonly works: boolean;
  /** True if content must be a list of parts. A string would be lost or rejected. */
  readonly wantsParts: boolean;
  /** True if a system role is supported. If false, system text is put in front of the next user message. */
  readonly takesSystem: boolean;
  /** True if a developer role is supported. If false, it is converted to system. */
  readonly takesDeveloper: boolean;
  /** True if tools are supported. If false, system text describes the tools. */
  readonly takesTools: boolean;
  /** True if results of calls are supported. If false, they become user messages. */
  readonly takesResults: boolean;
  readonly calls: CallCapabilities;
}

/** Capabilities of a model's two templates (`withTools`: for requests with tools). null = missing or not probed. */
export interface ModelTemplateCapabilities {
  readonly usual: TemplateCapabilities | null;
  readonly withTools: TemplateCapabilities | null;
}
