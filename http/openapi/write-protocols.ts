// Owns writing docs/protocols.md. Run by `npm run docs` from the root of the sources, and by nobody else.
import { writeFileSync } from "node:fs";
import { describedRoutes } from "../routes.ts";
import { renderProtocols } from "./protocols.ts";

writeFileSync("docs/protocols.md", renderProtocols(describedRoutes));
