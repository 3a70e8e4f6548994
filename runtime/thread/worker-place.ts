// Place on a worker thread, as seen by its spawner: start, kill, connect. Used by place.ts; the code inside
// the thread is entry-thread.ts.
import { createInterface } from "node:readline";
import { MessageChannel, Worker } from "node:worker_threads";
import { goneError } from "../endpoint/endpoint.ts";
import { PortEndpoint } from "../endpoint/port-endpoint.ts";
import { type DialPort, dialChannel } from "./control.ts";
import { type Host, type HostExit, type HostOptions, semiSpaceMiB } from "./place-kind.ts";

/** Limit of the young generation in MiB. V8 makes a semi-space of a third of it. */
const youngHeapMiB = 3 * semiSpaceMiB;

export function startThread(options: HostOptions): Host {
  const { port1: ours, port2: theirs } = new MessageChannel();
  const worker = new Worker(new URL("./entry-thread.js", import.meta.url), {
    name: options.name,
    workerData: { name: options.name, port: theirs },
    transferList: [theirs],
    env: { ...process.env, ...options.environment },
    stdout: true,
    stderr: true,
    resourceLimits: {
      maxYoungGenerationSizeMb: youngHeapMiB,
      ...(options.heapMiB !== null && { maxOldGenerationSizeMb: options.heapMiB }),
    },
  });
  createInterface({ input: worker.stdout }).on("line", options.onOutput);
  createInterface({ input: worker.stderr }).on("line", options.onOutput);
  const endpoint = new PortEndpoint(ours, { peer: options.name, explain: options.explain });
  return {
    endpoint,
    pid: null,
    gone: untilGone(worker, options.onOutput),
    kill: () => void worker.terminate(),
    dial: async () => {
      // The endpoint is checked first, because a port that is sent to an ended thread never closes.
      if (endpoint.isLost) throw goneError(options.name, await endpoint.exit);
      const { port1, port2 } = new MessageChannel();
      endpoint.send(dialChannel, { port: port2 } satisfies DialPort, [port2]);
      return { place: options.name, kind: "thread", port: port1 };
    },
  };
}

function untilGone(worker: Worker, onOutput: (line: string) => void): Promise<HostExit> {
  return new Promise((resolve) => {
    let fault: string | null = null;
    worker.on("error", (error) => {
      fault = error.message;
      onOutput(error.stack ?? error.message); // A thread does not print its stack; a child process does.
    });
    worker.on("exit", (code) => resolve({ code, signal: null, fault }));
  });
}
