// Hostile probes of stored responses: large responses are read page by page, the server survives a full disk, and it detects a
// response whose owner process has died.
import { hostileSuite } from "../../fixtures/hostile/suite.ts";
import { loadableEdges } from "../../fixtures/http-server.ts";
import { tinyModel } from "../../fixtures/models/models.ts";

const [edge = "node"] = loadableEdges();

hostileSuite("stored responses", {
  edge,
  model: tinyModel,
  names: [
    "100 readings of input_items of 45 MB",
    "10 references to an item among 45 MB",
    "full disk, then room",
    "owner killed, not yet reaped",
    "1,000 tiny responses of one client",
  ],
});
