// Owns writing docs/configuration.md. Run by `npm run docs` from the root of the sources, and by nobody else.
import { writeFileSync } from "node:fs";
import { renderReference } from "./reference.ts";

writeFileSync("docs/configuration.md", renderReference());
