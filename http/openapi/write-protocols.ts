// Writes docs/protocols.md; `npm run docs` runs it from the root of the sources.
import { writeFileSync } from "node:fs";
import { describedRoutes } from "../routes.ts";
import { renderProtocols } from "./protocols.ts";

writeFileSync("docs/protocols.md", renderProtocols(describedRoutes));
