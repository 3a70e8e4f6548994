// Parses the messages of MCP servers, for transports that carry text.
import { type JSONRPCMessage, parseJSONRPCMessage } from "@modelcontextprotocol/client";

/** Returns the message in a text; null = not a JSON-RPC message. */
export function messageIn(text: string): JSONRPCMessage | null {
  try {
    return parseJSONRPCMessage(JSON.parse(text));
  } catch {
    return null;
  }
}
