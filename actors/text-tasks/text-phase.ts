// TextPhase: the phases of a text task. If a phase takes too much time or memory, the error message names the phase.

/** `body`: reading a request body. `messages`: rendering and tokenizing. `template`: test renders. */
export type TextPhase = "body" | "messages" | "grammar" | "input" | "check" | "model" | "template";
