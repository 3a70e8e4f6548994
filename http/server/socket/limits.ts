// Socket limits: limits of the WebSocket connections of one server.
export interface SocketLimits {
  /** Maximum number of open connections. */
  readonly maxOpen: number;
  /** Maximum time in ms without a request in progress. */
  readonly idleMs: number;
  /** Time in ms after which the connection accepts no more requests. A request in progress is completed. */
  readonly lifetimeMs: number;
}
