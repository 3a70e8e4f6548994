// Entry point of a place that runs as a child process, started by process-place.ts. Connects to the spawner on fd 3. Other
// peers connect through a socket in a folder that the spawner created.
import { rmSync } from "node:fs";
import { createServer, Socket } from "node:net";
import { dirname } from "node:path";
import { SocketEndpoint } from "../endpoint/socket-endpoint.ts";
import { toErrorRecord } from "../errors.ts";
import { type DialAnswer, type DialPath, dialChannel } from "./control.ts";
import { PlaceEntry } from "./entry.ts";

// Signals to the process group are ignored: the spawner receives them too and stops this process.
process.on("SIGINT", () => {});
process.on("SIGTERM", () => {});

const endpoint = new SocketEndpoint(new Socket({ fd: 3, readable: true, writable: true }), { peer: "spawner" });
const entry = new PlaceEntry(process.argv[2] ?? "place", endpoint);

endpoint.receive(dialChannel, ({ path }: DialPath) => {
  // The spawner removes the folder too. This handler removes it if the spawner ends first.
  process.on("exit", () => rmSync(dirname(path), { recursive: true, force: true }));
  const answer = (error: DialAnswer["error"]) => endpoint.send(dialChannel, { error } satisfies DialAnswer);
  let dialCount = 0;
  const server = createServer((socket) => {
    dialCount++;
    entry.admit(new SocketEndpoint(socket, { peer: `peer-${dialCount}` }));
  });
  server.on("error", (error) => answer(toErrorRecord(error)));
  server.listen(path, () => answer(null));
});
