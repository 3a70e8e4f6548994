// Limited command: a command with a limit on its processor time. The kernel enforces the limit, even after this server is
// killed.

export type Command = readonly [file: string, ...args: string[]];

/** Returns a command that sets the limit and then executes the given command in the same process. */
export function limitedCommand(command: Command, processorSeconds: number): Command {
  // Windows has no such limit.
  if (process.platform === "win32") return command;
  return ["/bin/sh", "-c", `ulimit -t ${processorSeconds}; exec "$@"`, "sh", ...command];
}
