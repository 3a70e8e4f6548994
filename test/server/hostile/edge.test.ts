// Each edge answers no request hidden in another, does not wait for the reader of its log, and survives the system's limits.
import { hostileSuite } from "../../fixtures/hostile/suite.ts";
import { loadableEdges } from "../../fixtures/http-server.ts";
import { tinyModel } from "../../fixtures/models.ts";

for (const edge of loadableEdges()) {
  hostileSuite("the edge", {
    edge,
    model: tinyModel,
    names: [
      "requests hidden in a body",
      "2,000 requests while nobody reads stderr",
      "long paths in the log",
      "more connections than file descriptors",
      "64 file descriptors",
      "checks in HTTP/1.0",
    ],
  });
}

const [edge = "node"] = loadableEdges();

hostileSuite("the MCP server", { edge, model: tinyModel, names: ["1,000 MCP sessions of one client"] });
