// Shared port (SO_REUSEPORT): several processes listen on one port, and the system assigns each new connection to one of them.
// This allows the next version of a server to start while the old version still runs.
import { readFileSync } from "node:fs";
import { ServerError } from "../../../runtime/errors.ts";

const MIGRATION = "/proc/sys/net/ipv4/tcp_migrate_req";

/**
 * Returns why connections may be reset when a server leaves a shared port; null if there is no such risk. A connection may
 * arrive between the last accept and the close of the listening socket. Linux passes it to another server only if
 * net.ipv4.tcp_migrate_req is 1.
 */
export function sharedPortRisk(): string | null {
  try {
    if (readFileSync(MIGRATION, "utf8").trim() === "1") return null;
  } catch {
    // Linux before 5.14 does not have net.ipv4.tcp_migrate_req.
  }
  return "a connection that arrives in the moment in which a server leaves the port is reset; set net.ipv4.tcp_migrate_req=1 (sysctl)";
}

/** First version of Node.js in which several servers can share a port. */
const FIRST_NODE = [22, 12] as const;

/** Throws config_invalid if node:http cannot share a port on this Node.js version, which would ignore the option. */
export function checkSharedPort(): void {
  const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
  if (major > FIRST_NODE[0] || (major === FIRST_NODE[0] && minor >= FIRST_NODE[1])) return;
  const message = `reuse_port with the edge "node" needs Node.js ${FIRST_NODE.join(".")}, this is ${process.versions.node}; use the edge "uws"`;
  throw new ServerError("config_invalid", message, { param: "reuse_port" });
}

/**
 * Calls `close` after the event loop has accepted all waiting connections, because the system resets connections that are still
 * in the queue of a socket when it is closed.
 */
export function afterAccept(close: () => void): void {
  // The first callback runs in the current turn of the event loop, possibly after this turn's accepts. The second callback runs
  // directly after the accepts of the next turn.
  setImmediate(() => setImmediate(close));
}
