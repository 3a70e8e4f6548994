// GET /api-doc/openapi.json. The first request builds the document in a worker thread. Building takes about 100 ms, which would
// block every stream on the main thread. The result is kept as text.
import { Worker } from "node:worker_threads";
import type { RouteHandler } from "../context.ts";

let text: Promise<string> | null = null;

export const openApi: RouteHandler = async (exchange) => {
  text ??= documentText();
  const body = await text;
  if (!exchange.request.signal.aborted) exchange.send(200, { "content-type": "application/json" }, body);
};

async function documentText(): Promise<string> {
  const worker = new Worker(new URL("./worker.js", import.meta.url), { name: "API document" });
  try {
    return await new Promise<string>((resolve, reject) => {
      worker.once("message", resolve);
      worker.once("error", reject);
      worker.once("exit", (code) =>
        reject(new Error(`the thread that makes the API document ended with code ${code}`)),
      );
    });
  } catch (error) {
    text = null; // the next request tries again
    throw error;
  }
}
