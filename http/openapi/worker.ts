// Worker thread that builds the API document of the enabled routes, posts it as text, and exits. Started by route.ts.
import { parentPort, workerData } from "node:worker_threads";
import { describedRoutes, isServed } from "../routes.ts";
import { openApiDocument } from "./document.ts";
import type { DocumentSettings } from "./route.ts";

const settings: DocumentSettings = workerData;
const served = describedRoutes.filter((route) => isServed(route, settings));
const servers = settings.basePath === "" ? {} : { servers: [{ url: settings.basePath }] };
parentPort?.postMessage(JSON.stringify({ ...openApiDocument(served, settings), ...servers }));
