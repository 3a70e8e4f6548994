// Script that writes docs/protocols.md. `npm run docs` runs it from the root of the repository.
import { writeFileSync } from "node:fs";
import { describedRoutes } from "../routes.ts";
import { renderProtocols } from "./protocols.ts";

writeFileSync("docs/protocols.md", renderProtocols(describedRoutes));
