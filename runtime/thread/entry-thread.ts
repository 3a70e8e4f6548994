// Owns the first lines that run on a place's worker thread. Started by worker-place.ts, imported by nobody.
import { type MessagePort, workerData } from "node:worker_threads";
import { PortEndpoint } from "../endpoint/port-endpoint.ts";
import { type DialPort, dialChannel } from "./control.ts";
import { PlaceEntry } from "./entry.ts";

const { name, port } = workerData as { readonly name: string; readonly port: MessagePort };
const link = new PortEndpoint(port, { peer: "spawner" });
const entry = new PlaceEntry(name, link);

let dialCount = 0;
link.receive(dialChannel, (dial: DialPort) => {
  dialCount++;
  entry.admit(new PortEndpoint(dial.port, { peer: `peer-${dialCount}` }));
});
