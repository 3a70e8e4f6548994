// Hostile probes of the HTTP server implementations ("edges"): malformed HTTP, unread logs, a lack of file descriptors and many
// MCP sessions. `bench hostile` runs the other probes.
import { hostileSuite } from "../../fixtures/hostile/suite.ts";
import { loadableEdges } from "../../fixtures/http-server.ts";
import { tinyModel } from "../../fixtures/models/models.ts";

const [first = "node", ...others] = loadableEdges();

hostileSuite("the edge", {
  edge: first,
  model: tinyModel,
  names: [
    "requests hidden in a body",
    "2,000 requests while nobody reads stderr",
    "long paths in the log",
    "more connections than file descriptors",
    "64 file descriptors",
    "1,000 MCP sessions of one client",
  ],
});

for (const edge of others) {
  // The HTTP parser of uws-compat does not pass HTTP/1.0 requests on, as docs/operating.md says.
  const names = [
    "requests hidden in a body",
    "long paths in the log",
    ...(edge === "node" ? ["checks in HTTP/1.0"] : []),
  ];
  hostileSuite("the edge", { edge, model: tinyModel, names });
}
