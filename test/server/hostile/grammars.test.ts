// Hostile probes of the grammar threads: slow matchers and abandoned compilations must not delay other clients. Uses the real
// model, because with a tiny vocabulary every grammar is fast.
import { hostileSuite } from "../../fixtures/hostile/suite.ts";
import { loadableEdges } from "../../fixtures/http-server.ts";
import { realModel } from "../../fixtures/models/models.ts";

const [edge = "node"] = loadableEdges();

hostileSuite("grammars that take long", {
  edge,
  model: async () => (await realModel()).path,
  names: ["ambiguous grammar", "five abandoned grammars"],
});
