// Server process: starts an MCP server as a child process with a minimal environment, with or without the sandbox. The child
// process and its descendants end with this process, even if this process is killed.
import { type ChildProcess, spawn } from "node:child_process";
import { constants } from "node:fs";
import { access, mkdir, mkdtemp } from "node:fs/promises";
import { delimiter, isAbsolute, join } from "node:path";
import type { Readable, Writable } from "node:stream";
import { ServerError } from "../../../runtime/errors.ts";
import { removeFolder } from "../../../runtime/host/remove-folder.ts";
import type { ConfinedCommand, ConfinedProcess, Sandbox } from "../../../runtime/sandbox/sandbox.ts";
import type { McpServerSource } from "../../api/agent/mcp.ts";

type ProcessSource = McpServerSource & { readonly type: "process" };

export interface ServerProcess {
  readonly stdin: Writable;
  readonly stdout: Readable;
  readonly stderr: Readable;
  /** Resolves with the reason when the process has ended. */
  readonly exited: Promise<string>;
  /** Kills the process and its whole process group. */
  kill(): void;
}

/** Environment variables that an MCP server needs to find programs and its files. No other variables are passed on. */
const passedVariables = ["PATH", "HOME", "LANG", "TMPDIR", "SystemRoot", "USERPROFILE", "APPDATA", "PATHEXT"];

/**
 * Shell script that starts the server. A background subshell waits on descriptor 3, a pipe whose other end this process holds.
 * When this process ends for any reason, the subshell kills the process group.
 */
const guarded = '(read -r _ <&3; kill -KILL 0) >/dev/null 2>&1 </dev/null & exec "$@" 3<&-';

/**
 * Starts the server in its configured working directory, or in one below `folder`, a private folder of this process. Rejects with
 * config_invalid if the command does not exist.
 */
export async function startServerProcess(
  source: ProcessSource,
  folder: string,
  sandbox: Sandbox | null,
): Promise<ServerProcess> {
  const { command, args, environment } = source;
  const workFolder = source.workFolder ?? join(folder, "work");
  if (source.workFolder === null) await mkdir(workFolder, { recursive: true, mode: 0o700 });
  if (sandbox !== null) {
    const service = { argv: [command, ...args], workFolder, environment, isService: true } as const;
    return source.workFolder === null
      ? confined(sandbox.launch(service))
      : await besideUserFolder(sandbox, service, folder);
  }
  const variables = { ...ownVariables(), ...environment };
  if (process.platform === "win32") return unconfined(spawn(command, args, optionsOf(workFolder, variables)));
  const program = await findCommand(command, workFolder, variables.PATH ?? "");
  return unconfined(spawn("/bin/sh", ["-c", guarded, "sh", program, ...args], optionsOf(workFolder, variables)));
}

/** Starts a command in a folder of the user. Its temporary folder is below `folder`, and is removed when the command has ended. */
async function besideUserFolder(sandbox: Sandbox, command: ConfinedCommand, folder: string): Promise<ServerProcess> {
  const temporaryFolder = await mkdtemp(join(folder, "tmp-"));
  const remove = () => removeFolder(temporaryFolder).catch(() => {});
  try {
    const child = confined(sandbox.launch({ ...command, temporaryFolder }));
    void child.exited.then(remove);
    return child;
  } catch (error) {
    await remove();
    throw error;
  }
}

function optionsOf(cwd: string, env: Readonly<Record<string, string>>) {
  const isDetached = process.platform !== "win32";
  return { cwd, env: { ...env }, detached: isDetached, stdio: ["pipe", "pipe", "pipe", "pipe"] as "pipe"[] };
}

function ownVariables(): Readonly<Record<string, string>> {
  const known = passedVariables.map((name) => [name, process.env[name]] as const);
  return Object.fromEntries(known.filter((entry): entry is [string, string] => entry[1] !== undefined));
}

async function findCommand(command: string, workFolder: string, path: string): Promise<string> {
  const places = command.includes("/")
    ? [isAbsolute(command) ? command : join(workFolder, command)]
    : path.split(delimiter).map((folder) => join(folder, command));
  for (const place of places) {
    const isExecutable = await access(place, constants.X_OK).then(
      () => true,
      () => false,
    );
    if (isExecutable) return place;
  }
  throw new ServerError("config_invalid", `its command "${command}" is not an executable program, or is not in PATH`);
}

function unconfined(child: ChildProcess): ServerProcess {
  const { pid, stdin, stdout, stderr, stdio } = child;
  if (stdin === null || stdout === null || stderr === null) throw new Error("the process has pipes");
  const exited = new Promise<string>((resolve) => {
    child.on("error", (error) => resolve(`its process could not be started: ${error.message}`));
    child.on("exit", (code, signal) => resolve(exitReason(code, signal)));
  });
  for (const stream of [stdin, stdout, stderr, stdio[3]]) stream?.on("error", () => {});
  const kill = (): void => killGroup(child, pid);
  // Also ends the guard subshell and any processes that the server has left behind.
  void exited.then(kill);
  return { stdin, stdout, stderr, exited, kill };
}

function killGroup(child: ChildProcess, pid: number | undefined): void {
  if (pid === undefined || process.platform === "win32") {
    child.kill("SIGKILL");
    return;
  }
  try {
    process.kill(-pid, "SIGKILL");
  } catch {
    // The process group no longer exists.
  }
}

function confined({ stdin, stdout, stderr, exited, kill }: ConfinedProcess): ServerProcess {
  const reason = exited.then(({ code, signal, limit }) =>
    limit === null ? exitReason(code, signal) : `it was ended: it exceeded the limit of ${limit} of the sandbox`,
  );
  return { stdin, stdout, stderr, exited: reason, kill: () => void kill() };
}

function exitReason(code: number | null, signal: NodeJS.Signals | null): string {
  return signal === null ? `its process exited with code ${code}` : `its process was killed by ${signal}`;
}
