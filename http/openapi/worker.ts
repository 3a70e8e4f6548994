// Worker thread that builds the API document of the routes that are served, posts it once as text, and exits. Started by route.ts.
import { parentPort, workerData } from "node:worker_threads";
import type { RouteSettings } from "../route.ts";
import { describedRoutes, isServed } from "../routes.ts";
import { openApiDocument } from "./document.ts";

const settings: RouteSettings = workerData;
const served = describedRoutes.filter((route) => isServed(route, settings));
parentPort?.postMessage(JSON.stringify(openApiDocument(served, settings)));
