// The parts of a text task by which a refusal says what took too much: see TextTasks.

/** `body`: reading a request body. `messages`: rendering and tokenising. `template`: test renders. */
export type TextPhase = "body" | "messages" | "grammar" | "input" | "check" | "model" | "template";
