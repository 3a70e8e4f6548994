// Visitors: 100 visitors load the page of the web UI at the same time, each with a separate connection and an empty
// cache. The server runs in a separate process and measures the delays of its own event loop.
import { Agent, request } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import type { LoopDelay } from "../loop-delay.ts";
import { startTroupe } from "../serving/servers.ts";

const visitorCount = 100;
const visitsEach = 3;
/** Pause of a visitor after each visit. */
const restMs = 1000;
const settleMs = 1000;
const headers = { "accept-encoding": "br" };

/** Returns the delays of the server's event loop while the visitors load the page. */
export async function measureVisitors(model: string): Promise<LoopDelay> {
  const server = await startTroupe(
    { model, threads: 1, sequences: 1, context: 1024, flags: ["--engine", "wasm"] },
    true,
  );
  try {
    const page = (await load(`${server.url}/ui/`, new Agent(), {})).toString("utf8");
    const names = [...page.matchAll(/(?:src|href)="\.\/([^"]+)"/g)].map(([, name]) => name as string);
    if (names.length === 0) throw new Error("expected a page that names its files; build the web UI");
    await sleep(settleMs);
    await server.takeLoopDelay?.();
    const visit = async (): Promise<void> => {
      for (let i = 0; i < visitsEach; i++) {
        const agent = new Agent({ keepAlive: true });
        for (const name of ["", ...names]) await load(`${server.url}/ui/${name}`, agent, headers);
        agent.destroy();
        await sleep(restMs);
      }
    };
    await Promise.all(Array.from({ length: visitorCount }, visit));
    const delay = await server.takeLoopDelay?.();
    if (!delay) throw new Error("the server did not measure its event loop");
    return delay;
  } finally {
    await server.stop();
  }
}

function load(url: string, agent: Agent, sent: Record<string, string>): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const asked = request(url, { agent, headers: sent }, (response) => {
      const parts: Buffer[] = [];
      response.on("data", (part: Buffer) => parts.push(part));
      response.on("end", () => {
        if (response.statusCode === 200) resolve(Buffer.concat(parts));
        else reject(new Error(`${url}: status ${response.statusCode}`));
      });
      response.on("error", reject);
    });
    asked.on("error", reject);
    asked.end();
  });
}
