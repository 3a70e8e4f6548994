// Hostile probes with faults: a missing file affects only its own model, a killed engine causes a retryable error, and
// the server does not run programs from its folder.
import { hostileSuite } from "../../fixtures/hostile/suite.ts";
import { loadableEdges } from "../../fixtures/http-server.ts";
import { tinyModel } from "../../fixtures/models/models.ts";

const [edge = "node"] = loadableEdges();

hostileSuite("faults", {
  edge,
  model: tinyModel,
  names: ["one model's file gone, text thread ended", "a pip of its own in the server's folder"],
});
hostileSuite("faults", { edge, engine: "llama", model: tinyModel, names: ["engine killed under a request"] });
