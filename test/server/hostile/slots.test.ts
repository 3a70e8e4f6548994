// Hostile probes of shared resources: one client must not use up the heap, the slots or the queue that other clients need.
import { hostileSuite } from "../../fixtures/hostile/suite.ts";
import { loadableEdges } from "../../fixtures/http-server.ts";
import { realModel } from "../../fixtures/models/models.ts";

const [edge = "node"] = loadableEdges();

hostileSuite("one greedy client", {
  edge,
  model: async () => (await realModel()).path,
  names: ["n x top_logprobs of two answers, heap of 220 MB", "one client in all slots and the whole queue"],
});
