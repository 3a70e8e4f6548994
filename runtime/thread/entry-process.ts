// Owns the first lines that run in a place's child process. Started by process-place.ts, imported by nobody. It speaks to
// the spawner on fd 3, and to dialled peers on a socket in a folder that the spawner made.
import { rmSync } from "node:fs";
import { createServer, Socket } from "node:net";
import { dirname } from "node:path";
import { SocketEndpoint } from "../endpoint/socket-endpoint.ts";
import { toErrorRecord } from "../errors.ts";
import { type DialAnswer, type DialPath, dialChannel } from "./control.ts";
import { PlaceEntry } from "./entry.ts";

// Whoever signals a whole group of processes means the spawner; it says when this one stops.
process.on("SIGINT", () => {});
process.on("SIGTERM", () => {});

const link = new SocketEndpoint(new Socket({ fd: 3, readable: true, writable: true }), { peer: "spawner" });
const entry = new PlaceEntry(process.argv[2] ?? "place", link);

link.receive(dialChannel, ({ path }: DialPath) => {
  // The spawner removes the folder too; this is for when it dies first.
  process.on("exit", () => rmSync(dirname(path), { recursive: true, force: true }));
  const answer = (error: DialAnswer["error"]) => link.send(dialChannel, { error } satisfies DialAnswer);
  let dialCount = 0;
  const server = createServer((socket) => {
    dialCount++;
    entry.admit(new SocketEndpoint(socket, { peer: `peer-${dialCount}` }));
  });
  server.on("error", (error) => answer(toErrorRecord(error)));
  server.listen(path, () => answer(null));
});
