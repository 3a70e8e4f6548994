// Script that writes docs/metrics.md. `npm run docs` runs it from the root of the repository.
import { writeFileSync } from "node:fs";
import { renderMetrics } from "./reference.ts";

writeFileSync("docs/metrics.md", renderMetrics());
