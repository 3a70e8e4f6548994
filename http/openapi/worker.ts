// Worker thread of the API document: builds it, posts it once as text, and ends. Started by route.ts.
import { parentPort } from "node:worker_threads";
import { describedRoutes } from "../routes.ts";
import { openApiDocument } from "./document.ts";

parentPort?.postMessage(JSON.stringify(openApiDocument(describedRoutes)));
