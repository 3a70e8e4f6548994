// Call source: the code or the commands in a call of a built-in tool, which are shown and edited as plain text. The arguments
// of all other calls are shown and edited as complete JSON, so that nothing is hidden from the user.

export interface CallSource {
  readonly language: "python" | "shell";
  /** The code, or the commands in order. */
  readonly texts: readonly string[];
  /** Arguments of the call other than the code or commands. */
  readonly rest: Readonly<Record<string, unknown>>;
}

/**
 * Returns the code or commands in the arguments of a call; null if there are none. `kind`: kind of the tool in approvals, or
 * its type in progress events.
 */
export function sourceOf(kind: string, args: unknown): CallSource | null {
  if (typeof args !== "object" || args === null) return null;
  const { code, commands, ...others } = args as Readonly<Record<string, unknown>>;
  if (kind === "code_execution" && typeof code === "string" && commands === undefined) {
    return { language: "python", texts: [code], rest: others };
  }
  const isShell = kind === "shell" && code === undefined && isTexts(commands);
  return isShell ? { language: "shell", texts: commands, rest: others } : null;
}

function isTexts(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.length > 0 && value.every((one) => typeof one === "string");
}
