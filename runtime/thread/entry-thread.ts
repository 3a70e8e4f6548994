// Entry point of a place that runs as a worker thread, started by worker-place.ts.
import { type MessagePort, workerData } from "node:worker_threads";
import { PortEndpoint } from "../endpoint/port-endpoint.ts";
import { type DialPort, dialChannel } from "./control.ts";
import { PlaceEntry } from "./entry.ts";

const { name, port } = workerData as { readonly name: string; readonly port: MessagePort };
const endpoint = new PortEndpoint(port, { peer: "spawner" });
const entry = new PlaceEntry(name, endpoint);

let dialCount = 0;
endpoint.receive(dialChannel, (dial: DialPort) => {
  dialCount++;
  entry.admit(new PortEndpoint(dial.port, { peer: `peer-${dialCount}` }));
});
