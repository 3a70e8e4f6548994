// Worker thread that builds the API document, posts it once as text, and exits. Started by route.ts.
import { parentPort } from "node:worker_threads";
import { describedRoutes } from "../routes.ts";
import { openApiDocument } from "./document.ts";

parentPort?.postMessage(JSON.stringify(openApiDocument(describedRoutes)));
