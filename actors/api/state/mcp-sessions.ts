// MCP sessions: the sessions of the MCP server (mcp_port) that replicas share (state_url). The state thread implements it. A session
// has no state but the message that began it.

export interface SharedMcpSession {
  /** Digest that identifies the client. */
  readonly client: string;
  /** The `initialize` message, as JSON. */
  readonly initialize: string;
}

/** Every method throws storage_unavailable. */
export interface McpSessions {
  /** Stores a session, which ends `idleMs` after its last use. Throws invalid_value if the message is too long. */
  put(session: SharedMcpSession & { readonly id: string; readonly idleMs: number }): Promise<void>;
  /** Returns a session, and extends its life; null: there is none. */
  find(request: { readonly id: string; readonly idleMs: number }): Promise<SharedMcpSession | null>;
  delete(id: string): Promise<void>;
}
