// Entry of the command line, imported by troupe.mjs: runs the command, and prints an error as one line. Exit codes: 0 success,
// 1 failure, 2 invalid settings. Each command is imported when it runs, because the modules of `serve` take most of a second.
// An unexpected error is left to troupe.mjs, which knows whether a module could not be loaded.
import { readFile } from "node:fs/promises";
import { ServerError } from "../runtime/errors.ts";
import { type CommandLine, type CommandName, parseArguments, type ToolName } from "./arguments.ts";
import type { Config } from "./config/config.ts";
import { unknownVariables } from "./config/environment.ts";
import type { Command } from "./config/key.ts";
import { parseToml, type TomlFile } from "./config/toml.ts";
import { commandsHelp, flagsHelp } from "./help.ts";
import { version } from "./version.ts";

const tools: Readonly<Record<ToolName, (args: readonly string[]) => void | Promise<void>>> = {
  models: async (args) => (await import("./commands/models.ts")).modelsCommand(args),
  cache: async (args) => (await import("./commands/cache.ts")).cacheCommand(args),
  quantize: async (args) => (await import("./commands/quantize.ts")).quantizeCommand(args),
  uqff: async (args) => (await import("./commands/uqff/uqff.ts")).uqffCommand(args),
  login: async (args) => (await import("./commands/login.ts")).loginCommand(args),
  doctor: async (args) => (await import("./commands/doctor.ts")).doctorCommand(args),
  completions: async (args) => (await import("./commands/completions.ts")).completionsCommand(args),
};

let isServer = false;
// A reader that is gone, as in `troupe models | head -1`, is no failure. It ends the command, but not a server.
for (const stream of [process.stdout, process.stderr]) {
  stream.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code !== "EPIPE") throw error;
    if (!isServer && stream === process.stdout) process.exit();
  });
}

try {
  await main(process.argv.slice(2));
} catch (error) {
  if (!(error instanceof ServerError)) throw error;
  process.stderr.write(`troupe: ${error.message}\n`);
  process.exit(error.code === "config_invalid" ? 2 : 1);
}

async function main(argv: readonly string[]): Promise<void> {
  const line = parseArguments(argv);
  if (line.version) {
    process.stdout.write(`troupe ${version}\n`);
    return;
  }
  if (line.tool !== null) return tools[line.tool.name](line.tool.args);
  const { command } = line;
  if (line.help || command === null) {
    process.stdout.write(command === null || command === "from-config" ? commandsHelp() : flagsHelp(command, line.all));
    return;
  }
  const file = line.file === null ? undefined : parseToml(await readConfigFile(line.file), line.file);
  const config = await configOf(line, commandOf(command, file), file);
  switch (config.command) {
    case "serve":
      isServer = true;
      return (await import("./serve.ts")).serve(config);
    case "bench":
      return (await import("./bench/bench.ts")).bench(config);
    case "tune":
      return (await import("./tune/tune.ts")).tune(config);
    case "run":
      return (await import("./run/run.ts")).run(config);
    default:
      config.command satisfies never;
  }
}

function commandOf(name: CommandName, file: TomlFile | undefined): Command {
  if (name === "agent") return "run";
  if (name !== "from-config") return name;
  // The file is defined, because parseArguments rejects from-config without a file.
  return (file as TomlFile).command;
}

async function configOf(line: CommandLine, command: Command, file: TomlFile | undefined): Promise<Config> {
  const { flags } = line;
  const request = { command, flags, environment: process.env, ...(file !== undefined && { file }) };
  for (const warning of unknownVariables(process.env)) process.stderr.write(`troupe: ${warning}\n`);
  return (await import("./default-config.ts")).configWithDefault(request);
}

async function readConfigFile(path: string): Promise<string> {
  try {
    return await readFile(path, "utf8");
  } catch (cause) {
    throw new ServerError("config_invalid", `the file "${path}" cannot be read: ${(cause as Error).message}`, {
      cause,
    });
  }
}
