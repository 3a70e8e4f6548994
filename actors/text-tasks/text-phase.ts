// TextPhase: the phases of a text task, named in the error when a phase takes too much time or memory.

/** `body`: reading a request body. `messages`: rendering and tokenizing. `template`: test renders. */
export type TextPhase = "body" | "messages" | "grammar" | "input" | "check" | "model" | "template";
