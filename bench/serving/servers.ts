// Starter of the measured servers, troupe, llama-server and mistral.rs, with equal settings. It also stops them.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { ServerError } from "../../runtime/errors.ts";
import { troupe } from "../command.ts";
import { layersOnGpu } from "../engine/peers.ts";
import type { LoopDelay } from "../loop-delay.ts";

const startLimitMs = 120_000;
const stopLimitMs = 10_000;
const pollMs = 50;
/** Characters of a server's output kept to explain a failed start. */
const keptOutput = 8_000;

const probe = new URL("./loop-delay-probe.js", import.meta.url);
/** Path in the source tree, because the Python program is not copied to the build output. */
const mistralRsProgram = fileURLToPath(new URL("../../../bench/mistralrs/serve.py", import.meta.url));

export interface RunningServer {
  readonly url: string;
  readonly pid: number;
  /** Returns the event loop delays since the last call; null if they are not measured. */
  readonly takeLoopDelay: (() => Promise<LoopDelay>) | null;
  stop(): Promise<void>;
}

export interface ServerSettings {
  readonly model: string;
  readonly threads: number;
  /** Maximum number of simultaneous sequences. */
  readonly sequences: number;
  /** Tokens in the KV cache, over all sequences. */
  readonly context: number;
  /** Additional flags. */
  readonly flags: readonly string[];
  /**
   * Whether each sequence has an equal share of the context. If false, all sequences share one pool. The default is the faster
   * choice for the engine.
   */
  readonly hasShares?: boolean;
  /** Whether the server computes on the GPU; default: on the CPU. */
  readonly gpu?: boolean;
}

/** Starts `troupe serve`. Measuring the loop delay (`watchLoop`) wakes the server every millisecond. */
export function startTroupe(settings: ServerSettings, watchLoop = false): Promise<RunningServer> {
  const { model, threads, sequences, context, flags, gpu } = settings;
  // With the wasm engine, all sequences share the KV cache. Otherwise each has an equal part: the llama engine, which `auto` may
  // choose, is slower with a shared KV cache, and the slots of llama-server have equal parts too.
  const { hasShares = !/--engine[ =]wasm/.test(flags.join(" ")) } = settings;
  const kv = hasShares ? ["--max-model-len", Math.floor(context / sequences)] : ["--kv-cache", `${context}tokens`];
  const sizes = ["--max-seqs", sequences, ...kv, "--threads", threads].map(String);
  const command = (port: number) => [
    ...(watchLoop ? [`--import=${probe}`] : []),
    ...[troupe, "serve", "-m", model, "--host", "127.0.0.1", "--port", String(port), ...(gpu ? [] : ["--cpu"])],
    ...["--disable-access-log", ...sizes, ...flags],
  ];
  return startServer("troupe", process.execPath, command, { hasProbe: watchLoop });
}

/**
 * Starts llama-server without its store of past prompts. No prompt comes twice, so the store would only cost memory and time.
 */
export function startPeer(program: string, settings: ServerSettings): Promise<RunningServer> {
  const { model, threads, sequences, context, flags, gpu = false } = settings;
  const sizes = ["-np", sequences, "-c", context, "-t", threads, "-tb", threads].map(String);
  return startServer("llama-server", program, (port) => [
    ...["-m", model, "--host", "127.0.0.1", "--port", String(port), ...layersOnGpu(gpu)],
    ...["--jinja", "--no-ui", "--cache-ram", "0", ...sizes, ...flags],
  ]);
}

/** Starts mistral.rs from its Python package. It computes on the CPU, and its cache grows with the sequences. */
export function startMistralRs(
  python: string,
  { model, threads, sequences }: Pick<ServerSettings, "model" | "threads" | "sequences">,
): Promise<RunningServer> {
  const command = (port: number) => [mistralRsProgram, model, String(port), String(sequences)];
  return startServer("mistral.rs", python, command, { env: { RAYON_NUM_THREADS: String(threads) } });
}

/**
 * Starts a server and waits until it responds to a chat request. A server can report healthy before its model is loaded. A 4xx
 * status counts as a response, because encoders reject chats.
 */
async function startServer(
  name: string,
  program: string,
  argumentsFor: (port: number) => string[],
  { hasProbe = false, env = {} }: { readonly hasProbe?: boolean; readonly env?: Readonly<Record<string, string>> } = {},
): Promise<RunningServer> {
  const port = await freePort();
  const child = spawn(program, argumentsFor(port), {
    stdio: ["ignore", "pipe", "pipe", hasProbe ? "ipc" : "ignore"],
    env: { ...process.env, ...env },
  });
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
  await once(child, "exit"); // The wait rejects if the program could not be started.
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
