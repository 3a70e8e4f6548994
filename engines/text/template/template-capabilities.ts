// Template capabilities: what a chat template accepts. Data only; probe-capabilities.ts finds it.

/** How a template takes the calls of a message. */
export interface CallCapabilities {
  /** Calls come out; where they do not, they are written as text. */
  readonly shown: boolean;
  /** Arguments must be JSON text; otherwise they are what that says. */
  readonly textArguments: boolean;
  /** Content must be null where there is none. */
  readonly nullContent: boolean;
  readonly ids: CallIds;
  /** Several calls of one message come out. */
  readonly several: boolean;
  /** What becomes of content that a message has beside its calls; `apart`: it must be in a message of its own. */
  readonly besideContent: "together" | "apart" | "lost";
  /** A message may have calls, content and thoughts at once. */
  readonly withThoughts: boolean;
}

/** `short`: ids must be nine letters and digits. `naming`: only they say what was called, as functions.NAME:COUNT. */
export type CallIds = "any" | "short" | "naming";

export interface TemplateCapabilities {
  /** It renders the simplest conversation, so when it fails on another, the messages are at fault. */
  readonly works: boolean;
  /** Content must be a list of parts; a string is lost or refused. */
  readonly wantsParts: boolean;
  /** Where false, system text goes in front of the next user message. */
  readonly takesSystem: boolean;
  /** Where false, the developer role becomes system. */
  readonly takesDeveloper: boolean;
  /** Where false, tools are described in system text. */
  readonly takesTools: boolean;
  /** Where false, results of calls are the user's. */
  readonly takesResults: boolean;
  readonly calls: CallCapabilities;
}

/** Those of a model's templates; null for one that is missing or not tested. */
export interface ModelTemplateCapabilities {
  readonly usual: TemplateCapabilities | null;
  readonly withTools: TemplateCapabilities | null;
}
