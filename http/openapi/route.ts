// GET /api-doc/openapi.json: serves the API document. A worker thread builds it at the first request, because this takes about
// 100 ms, which would block every stream on the main thread. The result is cached as text.
import { Worker } from "node:worker_threads";
import type { HttpConfig, RouteHandler } from "../context.ts";
import type { RouteSettings } from "../route.ts";

/** Settings that decide the content of the document. */
export type DocumentSettings = RouteSettings & Pick<HttpConfig, "basePath" | "unknownFields">;

/** Document texts, by the settings that determine them. */
const texts = new Map<string, Promise<string>>();

export const openApi: RouteHandler = async (exchange, { config }) => {
  const { allowLoraUpdates, servesMcp, servesDocs, servesMetrics, servesUi, servesLists, needsApiKey } = config;
  const { basePath, unknownFields, sharesModelFiles, downloadsModels } = config;
  const routes = { allowLoraUpdates, servesMcp, servesDocs, servesMetrics, servesUi, servesLists, needsApiKey };
  const body = await keptText({ ...routes, basePath, unknownFields, sharesModelFiles, downloadsModels });
  if (!exchange.request.signal.aborted) exchange.send(200, { "content-type": "application/json" }, body);
};

function keptText(settings: DocumentSettings): Promise<string> {
  const key = JSON.stringify(settings);
  const known = texts.get(key);
  if (known !== undefined) return known;
  const made = documentText(settings);
  texts.set(key, made);
  made.catch(() => texts.delete(key)); // the next request retries
  return made;
}

async function documentText(settings: DocumentSettings): Promise<string> {
  const worker = new Worker(new URL("./worker.js", import.meta.url), { name: "API document", workerData: settings });
  return new Promise<string>((resolve, reject) => {
    worker.once("message", resolve);
    worker.once("error", reject);
    worker.once("exit", (code) => reject(new Error(`the thread that makes the API document ended with code ${code}`)));
  });
}
