// Starts and stops the measured servers, troupe and llama-server, with equal settings.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { ServerError } from "../../runtime/errors.ts";
import { troupe } from "../command.ts";
import type { LoopDelay } from "../loop-delay.ts";

const startLimitMs = 120_000;
const stopLimitMs = 10_000;
const pollMs = 50;
/** Of a server's own output, what is kept to explain a start that failed. */
const keptOutput = 8_000;

const probe = new URL("./loop-delay-probe.js", import.meta.url);

export interface RunningServer {
  readonly url: string;
  readonly pid: number;
  /** How late its event loop's turns were since the last call; null where nobody watches. */
  readonly takeLoopDelay: (() => Promise<LoopDelay>) | null;
  stop(): Promise<void>;
}

export interface ServerSettings {
  readonly model: string;
  readonly threads: number;
  /** Sequences at the same time. */
  readonly sequences: number;
  /** Tokens in the cache, over all sequences. */
  readonly context: number;
  /** Flags beside these. */
  readonly flags: readonly string[];
  /** Each sequence has an equal share of the context; else all take it from one pool. By default as the engine is faster. */
  readonly hasShares?: boolean;
}

/** Starts `troupe serve`; `watchLoop` costs it a wake-up every millisecond. */
export function startTroupe(settings: ServerSettings, watchLoop = false): Promise<RunningServer> {
  const { model, threads, sequences, context, flags } = settings;
  // The llama engine, which auto may take, is slower with a pool; a llama-server's slots have equal shares.
  const { hasShares = !/--engine[ =]wasm/.test(flags.join(" ")) } = settings;
  const kv = hasShares ? ["--max-model-len", Math.floor(context / sequences)] : ["--kv-cache", `${context}tokens`];
  const sizes = ["--max-seqs", sequences, ...kv, "--threads", threads].map(String);
  const command = (port: number) => [
    ...(watchLoop ? [`--import=${probe}`] : []),
    ...[troupe, "serve", "-m", model, "--host", "127.0.0.1", "--port", String(port), "--cpu"],
    ...["--disable-access-log", ...sizes, ...flags],
  ];
  return startServer("troupe", process.execPath, command, watchLoop);
}

/** Starts llama-server. Its store of past prompts is off: no prompt comes twice, so it would only cost it memory and time. */
export function startPeer(program: string, settings: ServerSettings): Promise<RunningServer> {
  const { model, threads, sequences, context, flags } = settings;
  const sizes = ["-np", sequences, "-c", context, "-t", threads, "-tb", threads].map(String);
  return startServer("llama-server", program, (port) => [
    ...["-m", model, "--host", "127.0.0.1", "--port", String(port), "-ngl", "0"],
    ...["--jinja", "--no-ui", "--cache-ram", "0", ...sizes, ...flags],
  ]);
}

/**
 * Starts a server and waits until it answers a chat request; a 4xx counts, as encoders refuse chats. A server may be healthy
 * before its model is loaded.
 */
async function startServer(
  name: string,
  program: string,
  argumentsFor: (port: number) => string[],
  hasProbe = false,
): Promise<RunningServer> {
  const port = await freePort();
  const child = spawn(program, argumentsFor(port), { stdio: ["ignore", "pipe", "pipe", hasProbe ? "ipc" : "ignore"] });
  let printed = "";
  const keep = (data: Buffer) => {
    printed = (printed + data.toString()).slice(-keptOutput);
  };
  child.stdout?.on("data", keep);
  child.stderr?.on("data", keep);
  const url = `http://127.0.0.1:${port}`;
  const stop = () => stopServer(child);
  const stopWithUs = () => child.kill("SIGTERM");
  process.once("exit", stopWithUs);
  child.once("exit", () => process.off("exit", stopWithUs));
  try {
    await Promise.race([answers(url), ended(child)]);
  } catch (cause) {
    await stop();
    throw new ServerError("config_invalid", `${name} did not start:\n${printed}`, { cause });
  }
  return { url, pid: child.pid ?? 0, takeLoopDelay: hasProbe ? () => askProbe(child) : null, stop };
}

async function askProbe(child: ChildProcess): Promise<LoopDelay> {
  const answer = once(child, "message");
  child.send("take");
  return (await answer)[0] as LoopDelay;
}

async function answers(url: string): Promise<void> {
  const limit = Date.now() + startLimitMs;
  const body = JSON.stringify({ messages: [{ role: "user", content: "Hello." }], max_tokens: 1 });
  const question = { method: "POST", headers: { "content-type": "application/json" }, body };
  while (Date.now() < limit) {
    const isUp = await fetch(`${url}/v1/chat/completions`, question).then(
      async (response) => (await response.text()) !== "" && response.status < 500,
      () => false,
    );
    if (isUp) return;
    await sleep(pollMs);
  }
  throw new Error(`no answer after ${startLimitMs} ms`);
}

async function ended(child: ChildProcess): Promise<never> {
  await once(child, "exit"); // rejects where the program could not be started
  throw new Error("it ended");
}

async function stopServer(child: ChildProcess): Promise<void> {
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, "exit");
  child.kill("SIGTERM");
  const timer = setTimeout(() => child.kill("SIGKILL"), stopLimitMs);
  await gone;
  clearTimeout(timer);
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}
