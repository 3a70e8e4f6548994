// Limits of messages from MCP servers.

/** Maximum size in bytes of one message, in all transports. A server that sends a larger message is disconnected. */
export const maxMessageBytes = 16 * 2 ** 20;

/** Maximum number of consecutive lines that are not messages. A server that prints more of them to stdout is disconnected. */
export const maxJunkLines = 1000;

export const tooLarge = `it sent a message of more than ${maxMessageBytes / 2 ** 20} MiB`;
