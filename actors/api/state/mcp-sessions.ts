// MCP sessions: the sessions of the MCP server (mcp_port), which replicas share (state_url). The state thread implements the
// interface. The only state of a session is its `initialize` message.

export interface SharedMcpSession {
  /** Digest that identifies the client. */
  readonly client: string;
  /** The `initialize` message, as JSON. */
  readonly initialize: string;
}

/** Every method throws storage_unavailable. */
export interface McpSessions {
  /** Stores a session, which stays for at least `idleMs` after its last use. Throws invalid_value if the message is too long. */
  put(session: SharedMcpSession & { readonly id: string; readonly idleMs: number }): Promise<void>;
  /** Returns a session and restarts its idle time; null = no session. */
  find(request: { readonly id: string; readonly idleMs: number }): Promise<SharedMcpSession | null>;
  delete(id: string): Promise<void>;
}
