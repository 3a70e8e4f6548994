// Hostile probes of the text workers: grammars slow to translate and prompts slow to render must delay only their own client.
import { hostileSuite } from "../../fixtures/hostile/suite.ts";
import { loadableEdges } from "../../fixtures/http-server.ts";
import { tinyModel } from "../../fixtures/models/models.ts";

const [edge = "node"] = loadableEdges();

hostileSuite("text that takes long", {
  edge,
  model: tinyModel,
  names: [
    "long property name",
    "20,000 enum strings under not",
    "lark sequence of 80 KB",
    "50,000 lark comment lines",
    "open object, name of 600 letters, 3 times",
    "45 MB of tool arguments",
    "45 MB of U+E000",
    "endless template of one model",
    "template of one model that makes a huge list",
    "endless template of one model, at its load",
  ],
});
