// Template capabilities: what a chat template accepts. Data only; probe-capabilities.ts finds it.

/** How a template accepts the calls of a message. */
export interface CallCapabilities {
  /** Calls appear in the prompt; if false, calls are written as text. */
  readonly shown: boolean;
  /** Arguments must be JSON text; if false, they are the parsed value. */
  readonly textArguments: boolean;
  /** Content must be null if it is empty. */
  readonly nullContent: boolean;
  readonly ids: CallIds;
  /** All calls of a message appear in the prompt. */
  readonly several: boolean;
  /** Content of a message with calls: appears (`together`), must be a separate message (`apart`), or does not appear (`lost`). */
  readonly besideContent: "together" | "apart" | "lost";
  /** A message may have calls, content and reasoning at once. */
  readonly withThoughts: boolean;
}

/** `short`: ids must be nine letters and digits. `naming`: only the id names the tool, as functions.NAME:COUNT. */
export type CallIds = "any" | "short" | "naming";

export interface TemplateCapabilities {
  /** The template renders the simplest conversation, so if it fails on another, the messages are the cause. */
  readonly works: boolean;
  /** Content must be a list of parts; a string is lost or refused. */
  readonly wantsParts: boolean;
  /** If false, system text goes in front of the next user message. */
  readonly takesSystem: boolean;
  /** If false, the developer role becomes system. */
  readonly takesDeveloper: boolean;
  /** If false, system text describes the tools. */
  readonly takesTools: boolean;
  /** If false, results of calls become user messages. */
  readonly takesResults: boolean;
  readonly calls: CallCapabilities;
}

/** Capabilities of a model's templates; null if a template is missing or was not probed. */
export interface ModelTemplateCapabilities {
  readonly usual: TemplateCapabilities | null;
  readonly withTools: TemplateCapabilities | null;
}
