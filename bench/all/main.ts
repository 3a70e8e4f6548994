// `bench all`: runs all speed comparisons on this machine one after another and writes them as one page of bench/results/. The
// page begins with a description of the machine. Each benchmark runs in a separate process.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { access, writeFile } from "node:fs/promises";
import { basename, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import arg from "arg";
import { defaultPackage } from "../../engines/files/hub/catalog.ts";
import { resolveModel } from "../../engines/files/hub/resolve-model.ts";
import { ServerError } from "../../runtime/errors.ts";
import { encoderFile } from "../choice/encoder-file.ts";
import { machineFacts, machineName } from "../machine.ts";

export const usage = `npm run bench -- all --peer-dir DIR [FLAGS]: all speed comparisons, as one page about this machine

  --peer-dir DIR        folder with llama-server, llama-bench and llama-batched-bench
  --model ID            repeatable; default: the default model
  --encoder ID          embedding model; repeatable
  --long ID             model for prompts of 4,096 and 16,384 tokens; default: the first --model, with 4,096 tokens only
  --threads 2 --rounds 2
  --save                write bench/results/machine-NAME.md
`;

const bench = fileURLToPath(new URL("../main.js", import.meta.url));
const results = fileURLToPath(new URL("../../../bench/results/", import.meta.url));

interface Section {
  readonly title: string;
  readonly args: readonly string[];
}

interface Plan {
  readonly models: readonly string[];
  readonly encoders: readonly string[];
  readonly long: string | null;
  readonly peer: (program: string) => string;
  readonly threads: string;
  readonly rounds: string;
}

export async function main(argv: readonly string[]): Promise<void> {
  const flags = arg(
    {
      ...{ "--peer-dir": String, "--model": [String], "--encoder": [String], "--long": String },
      ...{ "--threads": Number, "--rounds": Number, "--save": Boolean },
    },
    { argv: [...argv] },
  );
  const [long = null] = await paths(flags["--long"] === undefined ? [] : [flags["--long"]]);
  const plan: Plan = {
    models: await paths(flags["--model"] ?? [defaultPackage]),
    encoders: await Promise.all((flags["--encoder"] ?? []).map(encoderFile)),
    long,
    peer: await peersIn(flags["--peer-dir"]),
    threads: String(flags["--threads"] ?? 2),
    rounds: String(flags["--rounds"] ?? 2),
  };
  const parts: string[] = [];
  const add = async (...texts: readonly string[]) => {
    parts.push(...texts);
    process.stdout.write(`${texts.join("\n\n")}\n\n`);
    // The page is written after each section, so that a later failure loses no finished section.
    if (flags["--save"]) await writeFile(join(results, `machine-${machineName()}.md`), `${parts.join("\n\n")}\n`);
  };
  await add(`# Speed on one machine: ${machineName()}`, machineFacts());
  for (const { title, args } of sections(plan)) {
    const shown = args.map((one) => (one.startsWith("/") ? basename(one) : one)).join(" ");
    await add(`## ${title}`, `\`bench ${shown}\``, withoutTitle(await outputOf(args)));
  }
}

/**
 * Runs a benchmark in a child process and returns its output. The child ends if this process ends. Throws `internal` if the
 * benchmark fails.
 */
async function outputOf(args: readonly string[]): Promise<string> {
  const child = spawn(process.execPath, ["--expose-gc", bench, ...args], { stdio: ["ignore", "pipe", "inherit"] });
  const stop = () => child.kill("SIGTERM");
  process.once("exit", stop);
  let text = "";
  child.stdout.on("data", (data: Buffer) => {
    text += data.toString();
  });
  const [code] = (await once(child, "close")) as [number | null];
  process.off("exit", stop);
  if (code !== 0) throw new ServerError("internal", `bench ${args[0]} ended with code ${code}`);
  return text;
}

async function paths(ids: readonly string[]): Promise<string[]> {
  const found: string[] = [];
  for (const id of ids) found.push((await resolveModel(id)).path);
  return found;
}

/** Returns the paths of the llama.cpp programs. Throws `config_invalid` if one is missing. */
async function peersIn(folder: string | undefined): Promise<Plan["peer"]> {
  if (folder === undefined) throw new ServerError("config_invalid", `--peer-dir is missing\n\n${usage}`);
  for (const program of ["llama-server", "llama-bench", "llama-batched-bench"]) {
    await access(join(folder, program)).catch(() => {
      throw new ServerError(
        "config_invalid",
        `--peer-dir expects a folder with ${program}; there is none in ${folder}`,
      );
    });
  }
  return (program) => resolve(folder, program);
}

function sections(plan: Plan): Section[] {
  const { models, encoders, long, peer, threads, rounds } = plan;
  const sizes = ["--threads", threads, "--rounds", rounds];
  const engines = models.flatMap((model) =>
    ["wasm", "llama"].map((engine) => ({
      title: `${basename(model)} on the ${engine} engine, over llama.cpp's own programs`,
      args: [
        ...["engine", "--engine", engine, "--model", model, ...sizes],
        ...["--peer", peer("llama-bench"), "--peer", peer("llama-batched-bench")],
      ],
    })),
  );
  const choice = {
    title: "What auto takes",
    args: [
      ...["choice", ...models.flatMap((model) => ["--model", model])],
      ...[...encoders.flatMap((encoder) => ["--encoder", encoder]), ...sizes],
    ],
  };
  const longModel = long ?? (models[0] as string);
  const started = (model: string) => [
    "serving",
    "--troupe-model",
    model,
    "--peer-server",
    peer("llama-server"),
    ...sizes,
  ];
  const longSizes = long === null ? [4096] : [4096, 16_384];
  return [
    ...engines,
    choice,
    ...models.map((model) => ({
      title: `${basename(model)}: the server as it starts, over llama-server`,
      args: started(model),
    })),
    ...longSizes.map((tokens) => ({
      title: `Prompts of ${tokens} tokens, over llama-server`,
      args: [
        ...[...started(longModel), "--concurrency", "1", "--requests", "3", "--warmup", "1"],
        ...["--prompt-tokens", String(tokens), "--context", String(tokens + 512), "--sequences", "1"],
      ],
    })),
  ];
}

/** Removes the title and the machine from a benchmark's output: the page already has the section's title and the machine. */
function withoutTitle(text: string): string {
  return text.split("\n").slice(4).join("\n").trim();
}
