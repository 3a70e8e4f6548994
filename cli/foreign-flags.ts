// Flags of other model servers. None of them is accepted: the error names the equivalent flag of troupe, with the user's value,
// or says why no flag is needed. Used by the command line only.
import { ServerError } from "../runtime/errors.ts";

interface ForeignFlag {
  /** The flag's names. Servers that share a flag are named together in `server`. */
  readonly names: readonly string[];
  readonly server: "llama-server" | "vLLM" | "llama-server and vLLM";
  /** Flag of troupe that accepts the same value. If absent, `note` says what to do. */
  readonly now?: string;
  /** Converts the value to the form that troupe expects; absent if the form is the same. */
  readonly translate?: (value: string) => string;
  /** Completes the sentence `"--jinja" is a flag of llama-server: …`. */
  readonly note?: string;
}

const always = (what: string) => `${what}; remove it`;
const detected = always("the format is detected from the model");

/**
 * Table of the flags of other servers. None of them has the name of a flag of troupe. Flags with the same name in troupe and in
 * another server are in `collisions`.
 */
export const foreignFlags: readonly ForeignFlag[] = [
  { names: ["--api-key-file"], server: "llama-server", now: "--api-keys-file" },
  { names: ["--model"], server: "llama-server and vLLM", now: "-m" },
  { names: ["--ctx-size"], server: "llama-server", now: "--max-model-len" },
  { names: ["--parallel", "-np"], server: "llama-server", now: "--max-seqs" },
  { names: ["--max-num-seqs"], server: "vLLM", now: "--max-seqs" },
  { names: ["--batch-size", "-b"], server: "llama-server", now: "--max-num-batched-tokens" },
  { names: ["--ubatch-size", "-ub"], server: "llama-server", now: "--max-prefill-chunk-tokens" },
  { names: ["--threads-batch", "-tb"], server: "llama-server", now: "--threads" },
  {
    names: ["--n-gpu-layers", "--gpu-layers", "-ngl"],
    server: "llama-server",
    note: "all layers are on the GPU if the machine has one; remove it, or write --cpu to use no GPU",
  },
  { names: ["--flash-attn", "-fa"], server: "llama-server", note: always("the engine chooses its attention kernels") },
  { names: ["--cont-batching", "-cb"], server: "llama-server", note: always("batching is always continuous") },
  { names: ["--jinja"], server: "llama-server", note: always("chat templates are always run") },
  { names: ["--metrics"], server: "llama-server", note: always("/metrics is on unless --disable-metrics is given") },
  { names: ["--mlock"], server: "llama-server", note: always("memory is not locked") },
  { names: ["--no-mmap"], server: "llama-server", note: "write --mmap false" },
  { names: ["--hf-repo", "-hf", "-hfr"], server: "llama-server", now: "-m" },
  { names: ["--hf-file", "-hff"], server: "llama-server", now: "--quantized-file" },
  {
    names: ["--model-url", "-mu"],
    server: "llama-server",
    note: "download the file and write -m FILE, or -m OWNER/NAME for a model of the hub",
  },
  { names: ["--model-draft", "-md"], server: "llama-server", now: "--draft-model" },
  { names: ["--speculative-model"], server: "vLLM", now: "--draft-model" },
  { names: ["--draft-max", "--draft"], server: "llama-server", now: "--max-draft-tokens" },
  { names: ["--num-speculative-tokens"], server: "vLLM", now: "--max-draft-tokens" },
  { names: ["--cache-type-k", "-ctk", "--cache-type-v", "-ctv"], server: "llama-server", now: "--pa-cache-type" },
  { names: ["--kv-cache-dtype"], server: "vLLM", now: "--pa-cache-type" },
  { names: ["--block-size"], server: "vLLM", now: "--pa-block-size" },
  { names: ["--cache-reuse"], server: "llama-server", note: always("requests always share the KV cache of a prefix") },
  { names: ["--enable-prefix-caching"], server: "vLLM", note: always("the prefix cache is on by default") },
  { names: ["--no-enable-prefix-caching"], server: "vLLM", note: "write --prefix-cache-n 0" },
  { names: ["--enable-chunked-prefill"], server: "vLLM", note: always("prefill is always in chunks") },
  { names: ["--swap-space"], server: "vLLM", now: "--kv-swap", translate: (value) => `${value}GiB` },
  { names: ["--embedding", "--embeddings"], server: "llama-server", note: "write --kind embedding" },
  { names: ["--chat-template-file"], server: "llama-server", now: "--chat-template" },
  { names: ["--timeout", "-to"], server: "llama-server", now: "--request-timeout-secs" },
  { names: ["--served-model-name"], server: "vLLM", now: "--alias" },
  { names: ["--max-loras"], server: "vLLM", now: "--lora-max-adapters" },
  {
    names: ["--lora-scaled"],
    server: "llama-server",
    note: "write --lora ALIAS=SOURCE; the adapter sets its own scale",
  },
  { names: ["--temp"], server: "llama-server", now: "--temperature" },
  { names: ["--repeat-penalty"], server: "llama-server", now: "--repetition-penalty" },
  { names: ["--predict", "--n-predict"], server: "llama-server", now: "--default-max-tokens" },
  { names: ["--enable-auto-tool-choice"], server: "vLLM", note: always("tool calls need no setting") },
  { names: ["--tool-call-parser", "--reasoning-parser", "--reasoning-format"], server: "vLLM", note: detected },
  {
    names: ["--tensor-parallel-size", "-tp", "--pipeline-parallel-size", "-pp"],
    server: "vLLM",
    note: always("models are not split across processes; llama.cpp spreads the layers over all GPUs"),
  },
  { names: ["--trust-remote-code"], server: "vLLM", note: always("code from a model's repository is never run") },
  { names: ["--enforce-eager"], server: "vLLM", note: always("there are no CUDA graphs to turn off") },
  { names: ["--uvicorn-log-level"], server: "vLLM", now: "--log-level" },
  { names: ["--disable-log-requests"], server: "vLLM", note: "write --disable-access-log" },
  { names: ["--allowed-origins"], server: "vLLM", now: "--cors-origins" },
  { names: ["--download-dir"], server: "vLLM", now: "--hf-cache" },
  {
    names: ["--ssl-keyfile", "--ssl-certfile", "--ssl-key-file", "--ssl-cert-file"],
    server: "llama-server and vLLM",
    note: "TLS is left to a reverse proxy in front of troupe; docs/scale.md has a configuration for nginx",
  },
];

/** Short flags of troupe that have a different meaning in llama-server, where their value is a number. */
const collisions: Readonly<Record<string, string>> = { "-c": "--max-model-len", "-t": "--threads" };

/** Commands of other programs, each with the equivalent command of troupe. */
export const foreignCommands: Readonly<Record<string, string>> = {
  chat: "run",
  generate: "run -i TEXT",
  start: "serve",
  server: "serve",
  pull: "run -m MODEL, which downloads the model if it is missing",
  list: "cache list",
  ls: "cache list",
  ps: "doctor",
  rm: "cache delete",
};

/** Throws config_invalid for the first word that is a flag of another server. Makes no other checks. */
export function refuseForeignFlags(argv: readonly string[]): void {
  for (const [index, word] of argv.entries()) {
    if (!word.startsWith("-")) continue;
    const [flag = "", ...joined] = word.split("=");
    const next = argv[index + 1];
    const value = joined.length > 0 ? joined.join("=") : next === undefined || next.startsWith("-") ? null : next;
    const instead = insteadOfForeign(flag, value);
    if (instead !== null) throw new ServerError("config_invalid", instead);
  }
}

function insteadOfForeign(flag: string, value: string | null): string | null {
  const collision = Object.hasOwn(collisions, flag) ? collisions[flag] : undefined;
  if (collision !== undefined && value !== null && /^\d+$/.test(value))
    return `"${flag} ${value}" is a flag of llama-server; write ${collision} ${value} instead`;
  const found = foreignFlags.find(({ names }) => names.includes(flag));
  if (found === undefined) return null;
  const { server, now, translate = String, note } = found;
  if (now === undefined) return `"${flag}" is a flag of ${server}: ${note}`;
  return `"${flag}" is a flag of ${server}; write ${now} ${value === null ? "VALUE" : translate(value)} instead`;
}
