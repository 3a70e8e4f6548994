// Owns the inside of the thread that makes the API document: posts it as text, once, and ends. Started by route.ts.
import { parentPort } from "node:worker_threads";
import { describedRoutes } from "../routes.ts";
import { openApiDocument } from "./document.ts";

parentPort?.postMessage(JSON.stringify(openApiDocument(describedRoutes)));
