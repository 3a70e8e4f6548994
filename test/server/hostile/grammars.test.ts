// Slow matchers and compilations that nobody waits for cost no other client. On the real model: a tiny vocabulary makes each
// grammar quick.
import { hostileSuite } from "../../fixtures/hostile/suite.ts";
import { loadableEdges } from "../../fixtures/http-server.ts";
import { realModel } from "../../fixtures/models.ts";

const [edge = "node"] = loadableEdges();

hostileSuite("grammars that take long", {
  edge,
  model: async () => (await realModel()).path,
  names: ["ambiguous grammar", "five abandoned grammars"],
});
