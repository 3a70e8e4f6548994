// Limits of the messages of MCP servers.

/** Maximum size in bytes of one message, in every transport. A server that sends a larger one is disconnected. */
export const maxMessageBytes = 16 * 2 ** 20;

/** Maximum number of lines in a row that are not messages. A server that prints more to its stdout is disconnected. */
export const maxJunkLines = 1000;

export const tooLarge = `it sent a message of more than ${maxMessageBytes / 2 ** 20} MiB`;
