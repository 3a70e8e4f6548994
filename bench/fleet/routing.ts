// Algorithms of a simulated load balancer: choose the replica for each request.
import type { Ask } from "./replica.ts";

/** Returns the index of the replica for a request. */
export type Router = (ask: Ask, replicas: readonly { readonly outstanding: number }[]) => number;

export const routers: Readonly<Record<string, () => Router>> = {
  "round-robin": () => {
    let count = 0;
    return (_ask, { length }) => count++ % length;
  },
  /** Chooses the replica with the fewest unfinished requests; if several have the fewest, the next of them in turn. */
  "least-connections": () => {
    let last = -1;
    return (_ask, replicas) => {
      let least = -1;
      for (let i = 1; i <= replicas.length; i++) {
        const place = (last + i) % replicas.length;
        if (least === -1 || (replicas[place]?.outstanding ?? 0) < (replicas[least]?.outstanding ?? 0)) least = place;
      }
      last = least;
      return least;
    };
  },
  /** Sends all requests of a conversation to the same replica. */
  hash:
    () =>
    (ask, { length }) => {
      const mixed = Math.imul(ask.conversation ^ (ask.conversation >>> 16), 0x45d9f3b) >>> 0;
      return ((mixed ^ (mixed >>> 15)) >>> 0) % length;
    },
};
