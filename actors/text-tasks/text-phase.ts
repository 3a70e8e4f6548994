// TextPhase: the phases of a text task. If a phase takes too much time or memory, the error message mentions the phase.

/** `body`: parsing a request body. `messages`: rendering and tokenizing. `template`: test renders of the chat template. */
export type TextPhase = "body" | "messages" | "grammar" | "input" | "check" | "model" | "template";
