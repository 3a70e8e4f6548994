// Hostile probes with large bodies and headers: they must neither block the main thread nor use up the memory for other
// clients' bodies.
import { hostileSuite } from "../../fixtures/hostile/suite.ts";
import { loadableEdges } from "../../fixtures/http-server.ts";
import { tinyModel } from "../../fixtures/models/models.ts";

const [first = "node", ...others] = loadableEdges();

hostileSuite("large bodies", {
  edge: first,
  model: tinyModel,
  names: ["content-type of 60 KB", "49 MB of 200,000 values", "49 MB of 200,000 names"],
});

for (const edge of others) {
  hostileSuite("large bodies", { edge, model: tinyModel, names: ["49 MB of 200,000 values"] });
}
