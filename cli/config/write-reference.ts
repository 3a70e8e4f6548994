// Script that writes docs/configuration.md. `npm run docs` runs it from the root of the repository.
import { writeFileSync } from "node:fs";
import { renderReference } from "./reference.ts";

writeFileSync("docs/configuration.md", renderReference());
