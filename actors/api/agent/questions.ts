// Questions that a tool asks the user during a call, and the user's answers.

export type AskUser = (question: ToolQuestion, signal: AbortSignal) => Promise<ToolAnswer>;

/** A question of a tool to the user of the run. */
export interface ToolQuestion {
  /** Name of the tool or server that asks, as shown to the user. */
  readonly label: string;
  readonly message: string;
  /** JSON schema of the requested data: an object with primitive properties. */
  readonly schema: QuestionSchema;
}

export interface QuestionSchema {
  readonly properties: Readonly<Record<string, unknown>>;
  readonly required: readonly string[];
}

/** Answer of the user. `cancel`: the user did not answer in time, or the call was cancelled. */
export type ToolAnswer =
  | { readonly action: "accept"; readonly content: Readonly<Record<string, AnswerValue>> }
  | { readonly action: "decline" | "cancel" };

export type AnswerValue = string | number | boolean | readonly string[];
