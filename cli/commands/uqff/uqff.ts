// `troupe uqff report|verify|inspect`: shows and checks the UQFF files of a model.
import { readdir, stat, writeFile } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import arg from "arg";
import { isUqff, shardSets } from "../../../engines/files/uqff/names.ts";
import { readUqff, type UqffFiles } from "../../../engines/files/uqff/uqff-files.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { createLogger } from "../../../runtime/log/log.ts";
import { suggestion } from "../../../runtime/nearest.ts";
import { parseArguments } from "../../arguments.ts";
import { resolveSource } from "../../assembly/models/model-specs.ts";
import { type ModelConfig, resolveConfig } from "../../config/config.ts";
import { createProgress } from "../../progress.ts";
import { version } from "../../version.ts";
import { sizeText, textTable } from "../table.ts";
import { uqffFlags } from "../tool-flags.ts";
import { reportFile, reportOn, type UqffReport } from "./report.ts";
import { verify } from "./verify.ts";

const actions = ["report", "verify", "inspect"] as const;

const usage = `troupe uqff report  -m MODEL [--quant NAME] [--json] [--write] [--base-model NAME] [--repo-id NAME]
troupe uqff verify  -m MODEL [--quant NAME] [--json]
troupe uqff inspect -m MODEL [--quant NAME] [--json] [TENSOR]

  -m, --model-id MODEL   a folder, a .uqff file, or a model of the hub
  --quant NAME           a .uqff file, or a quantization such as 4 or q4k; unset = all of the folder
  --json                 print JSON
  --write                write ${reportFile} into the folder
  --base-model NAME      model that the report names as the unquantized one
  --repo-id NAME         repository that the report names
  TENSOR                 layer or tensor to show; unset = all of them

report: layers with their types and bytes. verify: reads all weights; exit code 1 if something is wrong.
`;

/** Runs the command; `args` are the words after `troupe uqff`. Throws config_invalid for unknown arguments. */
export async function uqffCommand(args: readonly string[]): Promise<void> {
  const { action, word, flags } = parse(args);
  if (flags["--help"]) return void process.stdout.write(usage);
  const paths = await pathsOf(flags);
  const models = new Map<string, UqffFiles>();
  if (action === "verify") return await runVerify(paths, flags["--json"] === true);
  for (const path of paths) models.set(path, await readUqff(path));
  if (action === "inspect") return void process.stdout.write(`${inspect(models, word, flags["--json"] === true)}\n`);
  const report = reportOn(models, {
    tool: `troupe uqff report ${version}`,
    baseModel: flags["--base-model"] ?? null,
    repoId: flags["--repo-id"] ?? null,
  });
  if (flags["--write"])
    await writeFile(join(dirname(paths[0] as string), reportFile), `${JSON.stringify(report, null, 2)}\n`);
  process.stdout.write(`${flags["--json"] ? JSON.stringify(report, null, 2) : reportText(models, report)}\n`);
}

/** Returns the path of the first shard of each quantization that the flags select. Downloads a model that is on the hub. */
async function pathsOf(flags: ReturnType<typeof parse>["flags"]): Promise<readonly string[]> {
  const model = flags["--model-id"];
  if (model === undefined) throw invalid(`uqff expects -m; usage:\n${usage}`);
  const quant = flags["--quant"] === "all" ? undefined : flags["--quant"];
  const isFolder = await stat(resolve(model)).then(
    (found) => found.isDirectory(),
    () => false,
  );
  if (isFolder && quant === undefined) {
    const sets = shardSets(await readdir(resolve(model)));
    if (sets.length === 0) throw invalid(`there is no .uqff file in ${resolve(model)}`);
    return sets.map(({ files }) => join(resolve(model), files[0] ?? ""));
  }
  const words = ["bench", "-m", model, ...(quant === undefined ? [] : ["--from-uqff", quant])];
  // Like bench, this command has the settings of a model, but none of a server, whose variables may be set here.
  const settings = {
    command: "bench",
    flags: parseArguments(words).flags,
    environment: process.env,
    defaultModel: "",
  } as const;
  const config = resolveConfig(settings);
  const progress = createProgress();
  try {
    const log = createLogger({ level: "warn", format: "text" });
    const path = await resolveSource(config, (config.models as readonly [ModelConfig])[0], log, progress);
    if (!isUqff(path)) throw invalid(`uqff expects weights in UQFF; ${model} is ${path}`);
    return [path];
  } finally {
    progress.stop();
  }
}

async function runVerify(paths: readonly string[], isJson: boolean): Promise<void> {
  const progress = createProgress();
  const results = [];
  for (const path of paths) {
    const onTensor = (done: number, total: number) => progress.update(`reading ${basename(path)}`, done, total);
    results.push({ file: path, ...(await verify(path, onTensor)) });
  }
  progress.stop();
  if (results.some(({ errors }) => errors.length > 0)) process.exitCode = 1;
  const lines = results.flatMap(({ file, layers, errors }) => {
    return errors.length === 0 ? [`${file}: ${layers} layers, no error`] : errors.map((error) => `${file}: ${error}`);
  });
  process.stdout.write(`${isJson ? JSON.stringify(results, null, 2) : lines.join("\n")}\n`);
}

function reportText(models: ReadonlyMap<string, UqffFiles>, report: UqffReport): string {
  const parts = [...models].map(([path, { layers, others, version: format }], i) => {
    const rows = layers.map(({ key, typeName, shape, parts: tensors }) => {
      const bytes = [...tensors.values()].reduce((sum, tensor) => sum + tensor.bytes, 0);
      return [key, typeName, shape.join(" x "), sizeText(bytes)];
    });
    const counts = Object.entries(report.outputs[i]?.actual_counts ?? {}).map(([name, count]) => `${count} ${name}`);
    const bytes = others.reduce((sum, tensor) => sum + tensor.bytes, 0);
    const summary = `${basename(path)}: UQFF ${format}, ${layers.length} layers (${counts.join(", ")}); ${others.length} other tensors, ${sizeText(bytes)}`;
    return `${textTable([["layer", "type", "shape", "size"], ...rows])}\n${summary}`;
  });
  return parts.join("\n\n");
}

/** Describes one layer or tensor, or lists all tensors. */
function inspect(models: ReadonlyMap<string, UqffFiles>, word: string | undefined, isJson: boolean): string {
  const found = [...models].flatMap(([, model]) => described(model, word));
  if (found.length > 0) return isJson ? JSON.stringify(found, null, 2) : found.map(textOf).join("\n\n");
  const known = [...models.values()].flatMap(({ layers, tensors }) => [
    ...layers.map(({ key }) => key),
    ...tensors.keys(),
  ]);
  throw invalid(`there is no layer or tensor "${word}"${suggestion(word ?? "", known)}`);
}

type Description = Readonly<Record<string, unknown>>;

function described({ layers, tensors, files }: UqffFiles, word: string | undefined): Description[] {
  const headerOf = ({
    name,
    type,
    shape,
    offset,
    bytes,
    file,
  }: typeof tensors extends ReadonlyMap<string, infer T> ? T : never) => {
    return { name, type, shape, offset, bytes, file: basename(files[file] as string) };
  };
  if (word === undefined) return [...tensors.values()].map(headerOf);
  const layer = layers.find(({ key }) => key === word || `${key}.weight` === word);
  if (layer !== undefined) {
    const { key, format, typeName, shape, facts, parts } = layer;
    return [{ key, format, type: typeName, shape, ...Object.fromEntries(facts) }, ...[...parts.values()].map(headerOf)];
  }
  const tensor = tensors.get(word);
  return tensor === undefined ? [] : [headerOf(tensor)];
}

function textOf(description: Description): string {
  return textTable(
    Object.entries(description).map(([name, value]) => [
      name,
      Array.isArray(value) ? value.join(" x ") : String(value),
    ]),
  );
}

function parse(args: readonly string[]) {
  const [first, ...others] = args;
  const action = actions.find((name) => name === first);
  const isAsking = first === "--help" || first === "-h";
  if (action === undefined && !isAsking)
    throw invalid(`uqff expects ${actions.join(", ")}; got ${first ?? "none"}; usage:\n${usage}`);
  try {
    const { _: words, ...flags } = arg(uqffFlags, { argv: isAsking ? ["--help"] : others });
    if (words.length > (action === "inspect" ? 1 : 0)) throw invalid(`unexpected "${words.at(-1)}"; usage:\n${usage}`);
    return { action, word: words[0], flags };
  } catch (cause) {
    if (!(cause instanceof arg.ArgError)) throw cause;
    throw invalid(`${cause.message}; usage:\n${usage}`);
  }
}

function invalid(message: string): ServerError {
  return new ServerError("config_invalid", message);
}
