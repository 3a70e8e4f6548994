// Coding agent runner: starts an agent in a process with its own home folder and working folder, behind a proxy that
// rejects and records requests to all hosts except the server.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { dirname, join } from "node:path";
import { text } from "node:stream/consumers";
import { testCacheFolder } from "../../fixtures/test-cache.ts";
import type { CodingAgent } from "./coding-agent.ts";

const runLimitMs = 60_000;

export interface AgentRun {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
  /** Hosts other than the server to which the agent sent a request. */
  readonly otherHosts: readonly string[];
}

export interface Folders {
  readonly home: string;
  readonly work: string;
  remove(): void;
}

/** Creates a home folder and an empty working folder for an agent. */
export function createFolders(): Folders {
  const parent = join(testCacheFolder(), "tmp");
  mkdirSync(parent, { recursive: true });
  const root = mkdtempSync(join(parent, "coding-agent-"));
  const [home, work] = [join(root, "home"), join(root, "work")];
  for (const folder of [home, work, join(home, "tmp")]) mkdirSync(folder);
  return { home, work, remove: () => rmSync(root, { recursive: true, force: true }) };
}

/** Runs the agent in its working folder until it exits. Kills it after a minute. */
export async function runAgent(
  agent: CodingAgent,
  { installed, url, task, folders }: { installed: string; url: string; task: string; folders: Folders },
): Promise<AgentRun> {
  for (const [path, content] of Object.entries(agent.files(url))) {
    const file = join(folders.home, path);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, content);
  }
  const proxy = await startProxy();
  const [program = "", ...args] = agent.command(installed, task);
  const child = spawn(program, args, {
    cwd: folders.work,
    stdio: ["ignore", "pipe", "pipe"],
    timeout: runLimitMs,
    killSignal: "SIGKILL",
    // A separate process group, so that processes left behind by the agent can be killed.
    detached: true,
    env: { ...basicEnvironment(folders.home), ...proxy.environment, ...agent.environment(url) },
  });
  const output = Promise.all([text(child.stdout), text(child.stderr)]);
  const [code] = (await once(child, "exit")) as [number | null];
  endGroup(child.pid);
  const [stdout, stderr] = await output;
  proxy.stop();
  return { code, stdout, stderr, otherHosts: proxy.hosts };
}

function endGroup(leader: number | undefined): void {
  try {
    if (leader !== undefined) process.kill(-leader, "SIGKILL");
  } catch {
    // All processes of the group have already ended, so there is nothing to kill.
  }
}

function basicEnvironment(home: string): Record<string, string> {
  return { PATH: process.env.PATH ?? "", HOME: home, TMPDIR: join(home, "tmp"), LANG: "C.UTF-8" };
}

/** Starts a proxy that responds to each request with 403. */
async function startProxy() {
  const hosts: string[] = [];
  const server = createServer((request, response) => {
    hosts.push(request.url ?? "");
    response.writeHead(403).end();
  });
  server.on("connect", (request, socket) => {
    hosts.push(request.url ?? "");
    socket.on("error", () => {});
    socket.end("HTTP/1.1 403 Forbidden\r\n\r\n");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const environment = Object.fromEntries(
    ["http_proxy", "https_proxy"].flatMap((name) => [
      [name, url],
      [name.toUpperCase(), url],
    ]),
  );
  return {
    hosts,
    environment: { ...environment, no_proxy: "127.0.0.1", NO_PROXY: "127.0.0.1" },
    stop: () => server.close(),
  };
}
