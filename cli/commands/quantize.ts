// `troupe quantize`: writes a model at one or more quantization levels, as GGUF files or as UQFF. The model may be a GGUF file or a
// checkpoint, local or on the hub.
import { realpath } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import arg from "arg";
import { isShardName, stemOf as stemOfFile } from "../../engines/files/gguf/shards.ts";
import { isCheckpoint } from "../../engines/files/hub/choice/checkpoint-choice.ts";
import { withFileLock } from "../../engines/files/hub/download/file-lock.ts";
import { isUqff } from "../../engines/files/uqff/names.ts";
import { convert } from "../../engines/quantization/conversion/conversion.ts";
import { checkpointName, type PlannedModel, planModel } from "../../engines/quantization/conversion/plan-model.ts";
import { parseLevel } from "../../engines/quantization/plan/levels.ts";
import { ServerError } from "../../runtime/errors.ts";
import { computeThreads } from "../../runtime/host/cores.ts";
import { createLogger } from "../../runtime/log/log.ts";
import { modelKinds, parseArguments } from "../arguments.ts";
import { resolveSource } from "../assembly/models/model-specs.ts";
import { modelOptionsOf } from "../assembly/quantization/load-options.ts";
import { type Config, type ModelConfig, resolveConfig } from "../config/config.ts";
import { createProgress, type Progress } from "../progress.ts";
import { endOnSignals, unlessEnded } from "../run/signals.ts";
import { version } from "../version.ts";
import { byTroupe, writeReadme } from "./readme.ts";
import { sizeText, textTable } from "./table.ts";
import { quantizeFlags } from "./tool-flags.ts";
import { type UqffOptions, writeUqff } from "./uqff/write-uqff.ts";

const usage = `troupe quantize -m MODEL --isq LEVEL [--isq LEVEL …] -o FILE.gguf|FILE.uqff|FOLDER [FLAGS]

  -m, --model-id MODEL        a .gguf file, a folder with safetensors, or a model of the hub
  --isq LEVEL                 2, 3, 4, 5, 6 or 8 bits, or a type such as q4k, q8_0, bf16; repeat it for several files
  -o, --output PATH           a .gguf or .uqff file for one level; else a folder
  --uqff                      write UQFF into the folder: NAME-0.uqff and the files it needs
  --uqff-base-model NAME      model named in the README and the report of UQFF; unset = MODEL
  --uqff-repo-id NAME         repository named in the README and the report of UQFF
  --imatrix FILE              importance matrix: that of llama.cpp (GGUF, .imatrix) or .cimatrix
  --topology FILE             YAML file that gives layers their own level
  --isq-organization NAME     default, or moqe: only the matrices of experts
  --dtype TYPE                type of matrices that stay floats: auto, f32, f16, bf16
  --hf-overrides JSON         values merged into the config.json of a checkpoint
  -a, --arch NAME             architecture in place of the one that the files name
  --gqa N                     query heads for each key head of a GGML file
  --tok-model-id FOLDER       folder or file with the tokenizer of a checkpoint
  --matformer-config-path FILE, --matformer-slice-name NAME
                              table of the slices of a MatFormer checkpoint, and the slice to write
  -f, --quantized-file FILE   file to take if the model has several
  --from-uqff FILE            file of UQFF to take
  --threads N                 0: one per core
  --no-readme                 write no README.md into the folder
`;

/** Flags that `bench` has too. Their values are checked as for `bench`. */
const settingFlags = [
  ...["--model-id", "--imatrix", "--topology", "--isq-organization", "--dtype"],
  ...["--hf-overrides", "--tok-model-id", "--quantized-file", "--from-uqff", "--threads"],
  ...["--arch", "--gqa", "--matformer-config-path", "--matformer-slice-name"],
] as const;

/** Interval in ms between checks whether another process has released its lock. */
const lockPollMs = 500;

interface Written {
  readonly path: string;
  readonly level: string;
  readonly planned: PlannedModel;
  readonly seconds: number;
}

/** Runs the command; `args` are the words after `troupe quantize`. Throws config_invalid for unknown arguments. */
export async function quantizeCommand(args: readonly string[]): Promise<void> {
  const flags = parse(args);
  if (flags["--help"]) return void process.stdout.write(usage);
  const { "--isq": levels = [], "--output": output } = flags;
  if (flags["--model-id"] === undefined || output === undefined || levels.length === 0) {
    throw invalid(`quantize expects -m, --isq and -o; usage:\n${usage}`);
  }
  const isFile = /\.(?:gguf|uqff)$/i.test(output);
  const isUqffWanted = isUqff(output) || flags["--uqff"] === true || hasUqffNames(flags);
  if (isUqffWanted && /\.gguf$/i.test(output))
    throw invalid("--uqff expects a .uqff file or a folder as -o; got a .gguf file");
  if (isFile && levels.length > 1)
    throw invalid(`-o names one file, but --isq names ${levels.length} levels; name a folder`);
  if (isFile && isShardName(output)) {
    const part = "one of several parts of a model, but all its weights are written into it";
    throw invalid(`-o expects a name of a whole model; ${basename(output)} names ${part}: leave out the numbers`);
  }
  const wanted = [...new Set(levels.map((level) => parseLevel(level, "--isq").name))];
  const config = settingsOf(flags);
  const [model] = config.models as readonly [ModelConfig];
  const { signal } = endOnSignals({ repl: null });
  const progress = createProgress(signal);
  const log = createLogger({ level: "warn", format: "text" });
  try {
    const source = await resolveSource(config, model, log, progress);
    if (isUqffWanted) {
      const lines = await writeUqff(source, wanted, uqffOptions(flags, output, config, progress));
      progress.stop();
      return void process.stdout.write(`${lines}\n`);
    }
    const written: Written[] = [];
    for (const level of wanted) {
      const targetOf = (name: string) =>
        isFile ? resolve(output) : join(resolve(output), `${stemOf(source)}-${name}.gguf`);
      written.push(await writeLevel(source, level, config, targetOf, progress));
    }
    if (!isFile && !flags["--no-readme"]) await writeReadme(resolve(output), readme(model.modelId, written), warn);
    progress.stop();
    process.stdout.write(`${table(written)}\n`);
  } catch (error) {
    unlessEnded(signal)(error);
  } finally {
    progress.stop();
  }
}

function hasUqffNames(flags: ReturnType<typeof parse>): boolean {
  return flags["--uqff-base-model"] !== undefined || flags["--uqff-repo-id"] !== undefined;
}

function uqffOptions(flags: ReturnType<typeof parse>, output: string, config: Config, progress: Progress): UqffOptions {
  const [model] = config.models as readonly [ModelConfig];
  return {
    output: resolve(output),
    baseModel: flags["--uqff-base-model"] ?? model.modelId,
    repoId: flags["--uqff-repo-id"] ?? null,
    hasReadme: !flags["--no-readme"],
    threads: computeThreads(config.troupe.threads),
    model,
    progress,
    warn,
  };
}

function warn(message: string): void {
  process.stderr.write(`troupe: ${message}\n`);
}

function settingsOf(flags: ReturnType<typeof parse>): Config {
  const words = settingFlags.flatMap((name) => {
    const value = flags[name];
    return value === undefined ? [] : [name, value];
  });
  const { flags: parsed } = parseArguments(["bench", ...words]);
  // Like bench, this command has the settings of a model, but none of a server, whose variables may be set here.
  return resolveConfig({ command: "bench", flags: parsed, environment: process.env, defaultModel: "" });
}

async function writeLevel(
  source: string,
  level: string,
  config: Config,
  targetOf: (level: string) => string,
  progress: Progress,
): Promise<Written> {
  const [model] = config.models as readonly [ModelConfig];
  const options = await modelOptionsOf({ ...model, quantization: { ...model.quantization, isq: level } }, warn);
  const planned = await planModel(source, options, warn);
  const { conversion } = planned;
  const target = targetOf(level);
  if (await isSourceFile(target, conversion.files))
    throw invalid(`-o names a file of the model itself, ${target}; name another`);
  const start = performance.now();
  const { signal } = progress;
  const onProgress = (done: number, total: number) => progress.update(`writing ${basename(target)}`, done, total);
  const onWait = () => warn(`another process writes ${target}; waiting for it`);
  await withFileLock(`${target}.lock`, { pollMs: lockPollMs, signal, onWait }, () =>
    convert(conversion, { target, threads: computeThreads(config.troupe.threads), signal, onProgress }),
  );
  return { path: target, level, planned, seconds: (performance.now() - start) / 1000 };
}

/** Returns whether a path is one of `files`, directly or through a symbolic link. */
async function isSourceFile(path: string, files: readonly string[]): Promise<boolean> {
  const real = await realpath(path).catch(() => null);
  return real !== null && (await Promise.all(files.map((file) => realpath(file)))).includes(real);
}

function readme(model: string, written: readonly Written[]): string[] {
  const rows = written.map(({ path, level, planned }) => {
    const { fileBytes } = planned.conversion.head;
    return `| ${basename(path)} | ${level} | ${sizeText(fileBytes)} | ${bitsOf(planned)} |`;
  });
  return [
    `# ${basename(model)}, quantized`,
    "",
    `GGUF files made from \`${model}\` ${byTroupe} ${version}. Each can be served with \`troupe serve -m FILE\`.`,
    "",
    "| file | level | size | bits a weight |",
    "|---|---|---|---|",
    ...rows,
    "",
  ];
}

function table(written: readonly Written[]): string {
  const rows = written.map(({ path, level, planned, seconds }) => {
    const { fileBytes } = planned.conversion.head;
    return [level, sizeText(fileBytes), bitsOf(planned), `${seconds.toFixed(1)} s`, path];
  });
  return textTable([["level", "size", "bits a weight", "time", "file"], ...rows]);
}

/** Returns the mean number of bits per weight, as text. */
function bitsOf({ conversion: { tensors, head } }: PlannedModel): string {
  const weights = tensors.reduce((sum, { shape }) => sum + shape.reduce((product, length) => product * length, 1), 0);
  return ((8 * (head.fileBytes - head.bytes.length)) / weights).toFixed(2);
}

function stemOf(source: string): string {
  return isCheckpoint(source) ? checkpointName(dirname(source)) : stemOfFile(basename(source)).replace(/\.bin$/i, "");
}

function parse(args: readonly string[]) {
  const [kind] = args;
  const words = kind !== undefined && modelKinds.includes(kind) ? args.slice(1) : args;
  try {
    const { _: others, ...flags } = arg(quantizeFlags, { argv: [...words] });
    if (others.length > 0) throw invalid(`unexpected "${others[0]}"; usage:\n${usage}`);
    return flags;
  } catch (cause) {
    if (!(cause instanceof arg.ArgError)) throw cause;
    throw invalid(`${cause.message}; usage:\n${usage}`);
  }
}

function invalid(message: string): ServerError {
  return new ServerError("config_invalid", message);
}
