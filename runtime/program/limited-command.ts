// Limited command: a command whose processor time the kernel limits, also after this server was killed.

export type Command = readonly [file: string, ...args: string[]];

/** Returns a command that limits its processor time and then becomes the given one, with the same process id. */
export function limitedCommand(command: Command, processorSeconds: number): Command {
  // Windows has no such limit.
  if (process.platform === "win32") return command;
  return ["/bin/sh", "-c", `ulimit -t ${processorSeconds}; exec "$@"`, "sh", ...command];
}
