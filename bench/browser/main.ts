// `bench browser`: speed of the wasm engine in a page of Chromium, compared with the same engine in a server, and with
// wllama (llama.cpp compiled to WebAssembly) in the same browser.
import { createReadStream, existsSync, readFileSync } from "node:fs";
import { stat } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { basename, extname, join, normalize } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import arg from "arg";
import { type Browser, chromium } from "playwright-core";
import { median } from "../../cli/bench/report.ts";
import { defaultPackage } from "../../engines/files/hub/catalog.ts";
import { resolveModel } from "../../engines/files/hub/resolve-model.ts";
import { ServerError } from "../../runtime/errors.ts";
import { atLeast, type Finding, findingsTable, told } from "../overload/finding.ts";
import { report } from "../results.ts";
import { startTroupe } from "../serving/servers.ts";
import { restMs } from "../serving/sides.ts";

const storyTokens = 128;
/** Subjects of the requested stories. A story repeats little of its prompt, so prompt lookup drafts few tokens. */
const subjects = ["a lighthouse", "two brothers", "the last train", "a lost dog", "winter in a harbour"];
const sentence = "The quick brown fox jumps over the lazy dog near the old river bank. ";
const sentences = 32;
const context = 4096;

export const usage = `npm run bench -- browser [FLAGS]: speed of the wasm engine in Chromium, compared with Node.js

  --wllama FOLDER       unpacked npm package @wllama/wllama, to compare with too
  --chromium PROGRAM    default /usr/bin/chromium
  --model ID            repeatable; default: the default model
  --threads 2 --rounds 3 --save
`;

/** Times of one response. */
interface Timed {
  readonly firstMs: number;
  readonly decodeMs: number;
  readonly promptTokens: number;
  readonly outputTokens: number;
}

interface Side {
  readonly label: string;
  ask(prompt: string, tokens: number): Promise<Timed>;
  close(): Promise<void>;
}

interface Rates {
  readonly prefill: readonly number[];
  readonly decode: readonly number[];
}

export async function main(argv: readonly string[]): Promise<void> {
  const flags = arg(
    {
      "--wllama": String,
      "--chromium": String,
      "--model": [String],
      "--threads": Number,
      "--rounds": Number,
      "--save": Boolean,
    },
    { argv: [...argv] },
  );
  const threads = flags["--threads"] ?? 2;
  const rounds = flags["--rounds"] ?? 3;
  const wllama = flags["--wllama"] ?? null;
  if (wllama !== null && !existsSync(join(wllama, "esm/index.js"))) {
    throw new ServerError("config_invalid", `--wllama: expected the package @wllama/wllama in ${wllama}, unpacked`);
  }
  const browser = await chromium.launch({
    executablePath: flags["--chromium"] ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-dev-shm-usage"],
  });
  try {
    const tables: string[] = [];
    for (const model of flags["--model"] ?? [defaultPackage]) {
      const { path } = await resolveModel(model);
      tables.push(findingsTable(basename(path), await compare(browser, path, wllama, threads, rounds)));
    }
    const peer = wllama === null ? "none" : versionOf(wllama);
    report(
      {
        name: "browser",
        title: "The wasm engine in a browser",
        method:
          `Prefill of ${sentences} sentences; decode of a story of ${storyTokens} tokens; temperature 0, ${threads} threads, the ` +
          `sides one after another in each round. Chromium ${browser.version()}, headless; wllama ${peer}. Ours is timed by the ` +
          "events that reach the page or the HTTP client, wllama by its own figures. Ours drafts tokens by prompt lookup, as it " +
          "does by default; a story that repeats itself gains by it. Medians and all rounds, in tokens per second.",
        body: tables.join("\n\n"),
      },
      flags["--save"] ?? false,
    );
  } finally {
    await browser.close();
  }
}

async function compare(
  browser: Browser,
  path: string,
  wllama: string | null,
  threads: number,
  rounds: number,
): Promise<readonly Finding[]> {
  const site = await serve(path, wllama);
  const starts = [
    () => inServer(path, threads),
    () => inPage("ours", "this browser", browser, site.url, threads),
    ...(wllama === null ? [] : [() => inPage("wllama", "wllama", browser, site.url, threads)]),
  ];
  const rates = new Map<string, Rates>();
  try {
    for (let round = 0; round < rounds; round++) {
      for (const start of starts) await measure(await start(), round, rates);
    }
  } finally {
    site.server.close();
  }
  return findings(rates);
}

function versionOf(folder: string): string {
  return (JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as { readonly version: string }).version;
}

/**
 * Measures prefill and decode of a side (one of the compared engines) after a short warm-up request, and closes the side. The
 * side must have just been started.
 */
async function measure({ label, ask, close }: Side, round: number, rates: Map<string, Rates>): Promise<void> {
  await ask("Say hello.", 16);
  await sleep(restMs);
  const { firstMs, promptTokens } = await ask(`${round} ${sentence.repeat(sentences)}`, 2);
  await sleep(restMs);
  const { decodeMs, outputTokens } = await ask(
    `Write a story about ${subjects[round % subjects.length]}.`,
    storyTokens,
  );
  const prefill = (1000 * promptTokens) / firstMs;
  const decode = (1000 * (outputTokens - 1)) / decodeMs;
  process.stderr.write(`browser, ${label}: prefill ${prefill.toFixed(1)}, decode ${decode.toFixed(1)} tokens/s\n`);
  const before = rates.get(label) ?? { prefill: [], decode: [] };
  rates.set(label, { prefill: [...before.prefill, prefill], decode: [...before.decode, decode] });
  await close();
}

function findings(rates: ReadonlyMap<string, Rates>): Finding[] {
  const shown = (values: readonly number[]) =>
    `${median(values).toFixed(1)} (${values.map((value) => value.toFixed(1)).join(" ")})`;
  const found = [...rates].flatMap(([label, { prefill, decode }]) => [
    told(`${label}: prefill`, shown(prefill)),
    told(`${label}: decode`, shown(decode)),
  ]);
  const ratio = (of: Rates, over: Rates, part: keyof Rates) => median(of[part]) / median(over[part]);
  const [server, page, wllama] = [...rates.values()];
  if (server === undefined || page === undefined) return found;
  for (const part of ["prefill", "decode"] as const) {
    found.push(atLeast(`${part} over this Node.js`, ratio(page, server, part), 0.8));
    if (wllama !== undefined) found.push(atLeast(`${part} over wllama`, ratio(page, wllama, part), 8));
  }
  return found;
}

async function inPage(engine: string, label: string, browser: Browser, url: string, threads: number): Promise<Side> {
  const page = await browser.newPage();
  await page.goto(`${url}/page.html`);
  await page.evaluate(`load(${JSON.stringify(engine)}, ${threads})`);
  return {
    label,
    ask: async (prompt, tokens) => await page.evaluate(`answer(${JSON.stringify(prompt)}, ${tokens})`),
    close: () => page.close(),
  };
}

async function inServer(model: string, threads: number): Promise<Side> {
  const flags = ["--engine", "wasm"];
  const server = await startTroupe({ model, threads, sequences: 4, context: 4 * context, flags });
  return {
    label: "this Node.js",
    ask: (prompt, tokens) => askServer(server.url, prompt, tokens),
    close: () => server.stop(),
  };
}

async function askServer(url: string, input: string, tokens: number): Promise<Timed> {
  const startedAt = performance.now();
  const body = { input, max_output_tokens: tokens, temperature: 0, stream: true };
  const headers = { "content-type": "application/json" };
  const response = await fetch(`${url}/v1/responses`, { method: "POST", headers, body: JSON.stringify(body) });
  let [first, last, text] = [0, 0, ""];
  for await (const chunk of response.body?.pipeThrough(new TextDecoderStream()) ?? []) {
    text += chunk;
    if (!chunk.includes("response.output_text.delta")) continue;
    last = performance.now() - startedAt;
    first ||= last;
  }
  const [, end = "{}"] = /event: response\.(?:completed|incomplete)\ndata: (.*)/.exec(text) ?? [];
  const { usage } = (JSON.parse(end) as { response: { usage: { input_tokens: number; output_tokens: number } } })
    .response;
  const { input_tokens: promptTokens, output_tokens: outputTokens } = usage;
  return { firstMs: first, decodeMs: last - first, promptTokens, outputTokens };
}

const contentTypes: Readonly<Record<string, string>> = {
  ".html": "text/html",
  ".js": "text/javascript",
  ".wasm": "application/wasm",
};

/**
 * Serves the page, the engines and the model, with the headers that allow shared memory between the workers of a page.
 */
async function serve(model: string, wllama: string | null): Promise<{ readonly url: string; readonly server: Server }> {
  const root = fileURLToPath(new URL("../../..", import.meta.url));
  const pathOf = (name: string): string => {
    if (name === "/model.gguf") return model;
    if (name === "/page.html") return join(root, "bench/browser/page.html");
    if (wllama !== null && name.startsWith("/wllama/")) return join(wllama, "esm", normalize(name.slice(7)));
    return join(root, "dist/browser", normalize(name));
  };
  const server = createServer(async (request, reply) => {
    const path = pathOf(request.url ?? "");
    const size = await stat(path).then(
      (found) => found.size,
      () => null,
    );
    reply.writeHead(size === null ? 404 : 200, {
      "cross-origin-opener-policy": "same-origin",
      "cross-origin-embedder-policy": "require-corp",
      "content-type": contentTypes[extname(path)] ?? "application/octet-stream",
      "content-length": size ?? 0,
    });
    if (size === null) reply.end();
    else createReadStream(path).pipe(reply);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, server };
}
