// Adapter churn: clients stream while adapters are loaded, replaced and unloaded. Each response must equal the response of the
// same adapter version (`generation`) on an idle server, and no adapter may remain at the end. The benchmark uses the wasm
// engine, whose output for a sequence does not depend on the other sequences of the batch.
import { setTimeout as sleep } from "node:timers/promises";
import { exactly, findingsTable, told } from "../overload/finding.ts";
import { family, residentKiB } from "../proc.ts";
import { startTroupe } from "../serving/servers.ts";
import type { SideOptions } from "../serving/sides.ts";
import type { AdapterFile, AdapterFiles } from "./adapter-files.ts";
import { clients, sizes } from "./forms.ts";

const contents = 6;
const aliases = ["a", "b", "c", "d"] as const;
const answerTokens = 24;
/** Time in ms after which a client tries another alias if its alias names no adapter. */
const absentPauseMs = 50;
const question = [{ role: "user", content: "Tell a long story about the sea." }];

interface Listing {
  readonly data: readonly { readonly id: string; readonly generation: string }[];
  readonly resident_generations: number;
  readonly retired_generations: number;
  readonly resident_bytes: number;
  readonly generations: readonly { readonly active_leases: number }[];
}

interface Seen {
  whole: number;
  /** Requests rejected because their alias named no adapter at that moment. */
  absent: number;
  /** Responses that name several adapter versions, or whose text differs from the text of the named version. */
  mixed: number;
  readonly failures: string[];
}

/** Loads, replaces and unloads adapters `changes` times in total while `clients` clients stream. */
export async function churnTable(options: SideOptions, files: AdapterFiles, changes: number): Promise<string> {
  const folders = await files.take(contents, "attention");
  // The server process inherits this variable.
  process.env.SERVICE_ALLOW_RUNTIME_LORA_UPDATING = "1";
  const { sequences, tokensEach } = sizes;
  const { model, threads, flags } = options;
  const settings = { model, threads, sequences, context: sequences * tokensEach };
  const server = await startTroupe({ ...settings, flags: ["--engine", "wasm", "--enable-lora", ...flags] });
  try {
    const memory = () => family([server.pid]).reduce((sum, pid) => sum + residentKiB(pid), 0) / 1024;
    const texts = await textsByGeneration(server.url, folders);
    // Memory baseline: each adapter has been loaded once and 32 streams have run, so further changes should add no memory.
    await storm(server.url, folders, texts, clients);
    const before = memory();
    const seen = await storm(server.url, folders, texts, changes);
    const after = memory();
    const left = (await get(`${server.url}/v1/lora_adapters`)) as Listing;
    return findingsTable(`wasm, ${changes} loads, swaps and unloads under ${clients} streams`, [
      told("answers in full", String(seen.whole)),
      told("refused: the alias stood for nothing", String(seen.absent)),
      exactly("answers that are not of the one generation they name", seen.mixed, 0),
      exactly("other failures", seen.failures.length, 0),
      ...seen.failures.slice(0, 3).map((failure) => told("such as", failure.slice(0, 100))),
      exactly("generations left", left.resident_generations + left.retired_generations, 0),
      exactly("bytes left", left.resident_bytes, 0),
      told("memory of the server before and after", `${before.toFixed(0)} MiB, ${after.toFixed(0)} MiB`),
    ]);
  } finally {
    await server.stop();
  }
}

/** Returns the response text of each adapter version, generated on an idle server. */
async function textsByGeneration(url: string, folders: readonly AdapterFile[]): Promise<Map<string, string>> {
  const texts = new Map<string, string>();
  for (const { folder } of folders) {
    await change(url, "load", { lora_name: "alone", lora_path: folder });
    const { text, generations } = await answer(url, "alone");
    texts.set([...generations].join(), text);
    await change(url, "unload", { lora_name: "alone" });
  }
  if (new Set(texts.values()).size < contents) throw new Error("two adapters give the same text: they say too little");
  return texts;
}

/** Loads, replaces and unloads adapters (`changes` times) while clients stream without a pause, then unloads every alias. */
async function storm(
  url: string,
  folders: readonly AdapterFile[],
  texts: ReadonlyMap<string, string>,
  changes: number,
): Promise<Seen> {
  const seen: Seen = { whole: 0, absent: 0, mixed: 0, failures: [] };
  const over = new AbortController();
  const streams = Array.from({ length: clients }, (_, i) => streamOn(url, i, texts, seen, over.signal));
  const loaded = new Map<string, string>();
  for (let i = 0; i < changes; i++) {
    const alias = aliases[i % aliases.length] as string;
    const old = loaded.get(alias);
    // Every third change of an alias unloads the adapter that has the alias.
    if (old !== undefined && Math.floor(i / aliases.length) % 3 === 2) {
      await change(url, "unload", { lora_name: alias, expected_generation: old });
      loaded.delete(alias);
    } else {
      const { folder } = folders[(i * 5 + Math.floor(i / 7)) % folders.length] as AdapterFile;
      const swap = old === undefined ? {} : { load_inplace: true, expected_generation: old };
      const { generation } = await change(url, "load", { lora_name: alias, lora_path: folder, ...swap });
      loaded.set(alias, generation);
    }
  }
  over.abort();
  await Promise.all(streams);
  for (const alias of loaded.keys()) await change(url, "unload", { lora_name: alias });
  // The server frees unused adapters between two steps of the engine.
  for (let i = 0; i < 100 && !(await isEmpty(url)); i++) await sleep(20);
  return seen;
}

async function isEmpty(url: string): Promise<boolean> {
  const { generations } = (await get(`${url}/v1/lora_adapters`)) as Listing;
  return generations.length === 0;
}

async function streamOn(
  url: string,
  client: number,
  texts: ReadonlyMap<string, string>,
  seen: Seen,
  over: AbortSignal,
): Promise<void> {
  for (let turn = client; !over.aborted; turn++) {
    const { status, text, generations, failure } = await answer(url, aliases[turn % aliases.length] as string);
    if (status === 422) {
      seen.absent++;
      await sleep(absentPauseMs);
    } else if (failure !== null) seen.failures.push(failure);
    else if (generations.size !== 1 || texts.get([...generations].join()) !== text) seen.mixed++;
    else seen.whole++;
  }
}

interface Streamed {
  readonly status: number;
  readonly text: string;
  /** Adapter versions named in the chunks of the stream. */
  readonly generations: ReadonlySet<string>;
  readonly failure: string | null;
}

async function answer(url: string, adapter: string): Promise<Streamed> {
  const body = {
    messages: question,
    adapter,
    stream: true,
    temperature: 0,
    max_tokens: answerTokens,
    ignore_eos: true,
  };
  const response = await post(`${url}/v1/chat/completions`, body);
  const received = await response.text();
  const generations = new Set<string>();
  if (!response.ok) return { status: response.status, text: "", generations, failure: received };
  const lines = received.split("\n").filter((line) => line.startsWith("data: {"));
  let text = "";
  for (const line of lines) {
    const { choices, adapter_generation: generation, error } = JSON.parse(line.slice("data: ".length));
    if (error) return { status: response.status, text, generations, failure: error.message };
    generations.add(generation);
    text += choices[0]?.delta.content ?? "";
  }
  const failure = received.trimEnd().endsWith("data: [DONE]") ? null : "the stream was cut off";
  return { status: response.status, text, generations, failure };
}

async function change(url: string, what: "load" | "unload", body: object): Promise<{ readonly generation: string }> {
  const response = await post(`${url}/v1/${what}_lora_adapter`, body);
  const received = await response.text();
  if (!response.ok) throw new Error(`${what} of ${JSON.stringify(body)} answered ${response.status}: ${received}`);
  return JSON.parse(received);
}

function post(url: string, body: object): Promise<Response> {
  const headers = { "content-type": "application/json" };
  return fetch(url, { method: "POST", headers, body: JSON.stringify(body) });
}

async function get(url: string): Promise<unknown> {
  return (await fetch(url)).json();
}
