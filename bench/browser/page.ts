import type { PageMessage, WorkerMessage } from "../../browser/messages.ts";
const worker = new Worker(new URL("../../browser/page-worker.ts", import.meta.url), { type: "module", name: "page" });
const log: unknown[] = [];
Object.assign(globalThis, { log, isolated: crossOriginIsolated });
worker.onerror = (e) => log.push(`worker error ${e.message} ${e.filename}:${e.lineno}`);
worker.onmessage = ({ data }: MessageEvent<WorkerMessage>) => log.push(data);
const send = (message: PageMessage) => worker.postMessage(message);
Object.assign(globalThis, { send, load: async (url: string, threads: number) => {
  const file = await (await fetch(url)).blob();
  send({ kind: "load", model: { name: "model.gguf", file, threads, context: 4096 } });
} });
