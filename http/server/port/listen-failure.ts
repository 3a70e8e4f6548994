// Listen failure: finds out why the server cannot listen on an address, and creates the error. uWebSockets.js gives no reason,
// so the same address is tried with node:net.
import { createServer } from "node:net";
import { ServerError } from "../../../runtime/errors.ts";

const reasons: Readonly<Record<string, string>> = {
  EADDRINUSE: "is already in use; stop the server that has it, or choose another port",
  EACCES: "is not allowed for this user; choose a port from 1024 up",
  EADDRNOTAVAIL: "is not an address of this machine; choose another host, for example 127.0.0.1",
  ENOTFOUND: "names a host that cannot be resolved; choose another, for example 127.0.0.1",
};

/** Returns the error for a failed listen. `code`: error code of the operating system, if the caller knows it. */
export async function listenFailure(host: string, port: number, code?: string): Promise<ServerError> {
  const known = code ?? (await probe(host, port));
  const reason = reasons[known] ?? `cannot be listened on (${known})`;
  return new ServerError("config_invalid", `${host}:${port} ${reason}`, {
    param: known === "EADDRNOTAVAIL" || known === "ENOTFOUND" ? "host" : "port",
  });
}

function probe(host: string, port: number): Promise<string> {
  return new Promise((resolve) => {
    const socket = createServer();
    socket.once("error", (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
    // If listening succeeds now, the port was in use during the caller's attempt, and has been freed since.
    socket.listen(port, host, () => socket.close(() => resolve("EADDRINUSE")));
  });
}
