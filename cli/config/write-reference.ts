// Writes docs/configuration.md; `npm run docs` runs it from the root of the sources.
import { writeFileSync } from "node:fs";
import { renderReference } from "./reference.ts";

writeFileSync("docs/configuration.md", renderReference());
