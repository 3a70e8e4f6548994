// Parser of the messages of servers, for the transports that read text.
import { type JSONRPCMessage, parseJSONRPCMessage } from "@modelcontextprotocol/client";

/** Returns the message in a text; null: the text is not a JSON-RPC message. */
export function messageIn(text: string): JSONRPCMessage | null {
  try {
    return parseJSONRPCMessage(JSON.parse(text));
  } catch {
    return null;
  }
}
