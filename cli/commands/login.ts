// `troupe login`: verifies an access token with the hub, then stores it in the file that the hub's Python library uses. The
// token is never printed.
import { text } from "node:stream/consumers";
import arg from "arg";
import { whoAmI } from "../../engines/files/hub/api/hub-api.ts";
import { createHubContext, hurried } from "../../engines/files/hub/api/hub-context.ts";
import { checkToken, writeToken } from "../../engines/files/hub/api/hub-token.ts";
import { ServerError } from "../../runtime/errors.ts";
import { loginFlags } from "./tool-flags.ts";

const usage = "troupe login [--token TOKEN]; without --token it is asked for, or read from standard input";

/**
 * Runs the command; `args` are the words after `troupe login`. Throws config_invalid if there is no token or the hub rejects
 * it.
 */
export async function loginCommand(args: readonly string[]): Promise<void> {
  const flags = parse(args);
  if (flags["--help"]) return void process.stdout.write(`${usage}\n`);
  const token = checkToken(flags["--token"] ?? (await askForToken()), "the token");
  const name = await accountOf(token);
  const path = await writeToken(token, process.env);
  process.stdout.write(`${name === null ? "" : `logged in as ${name}; `}the token is stored in ${path}\n`);
  const other = ["HF_TOKEN", "HF_HUB_TOKEN"].find((variable) => process.env[variable]);
  if (other !== undefined) process.stderr.write(`note: ${other} is set and overrides the stored token\n`);
}

function parse(args: readonly string[]) {
  try {
    const { _: words, ...flags } = arg(loginFlags, { argv: [...args] });
    // The message does not quote the unexpected word, because it may be the token.
    if (words.length > 0) throw invalid(`unexpected words; login expects ${usage}`);
    return flags;
  } catch (cause) {
    if (!(cause instanceof arg.ArgError)) throw cause;
    throw invalid(`login expects ${usage}`);
  }
}

/** Returns the name of the account. If the hub cannot be reached, logs a warning and returns null. */
async function accountOf(token: string): Promise<string | null> {
  const context = hurried({ ...(await createHubContext({ tokenSource: "none" })), token });
  let name: string | null;
  try {
    name = await whoAmI(context);
  } catch (error) {
    if (!(error instanceof ServerError) || error.code !== "model_source_unreachable") throw error;
    process.stderr.write(`warning: the token is stored without a check: ${error.message}\n`);
    return null;
  }
  if (name !== null) return name;
  throw invalid(`the hub ${context.endpoint} refuses this token; create one at ${context.endpoint}/settings/tokens`);
}

async function askForToken(): Promise<string> {
  if (!process.stdin.isTTY) return await text(process.stdin);
  process.stderr.write("token (not shown): ");
  process.stdin.setRawMode(true);
  try {
    return await readHidden(process.stdin);
  } finally {
    process.stdin.setRawMode(false);
    process.stdin.pause();
    process.stderr.write("\n");
  }
}

/** Reads a line in raw mode, in which the terminal does not echo the typed text or handle editing keys. */
async function readHidden(input: NodeJS.ReadableStream): Promise<string> {
  let line = "";
  for await (const chunk of input.setEncoding("utf8")) {
    for (const character of String(chunk)) {
      if (character === "\r" || character === "\n") return line;
      // These characters are Ctrl-C and Ctrl-D.
      if (character === "\x03" || character === "\x04") throw invalid("login cancelled; nothing is stored");
      line = character === "\x7f" || character === "\b" ? line.slice(0, -1) : line + character;
    }
  }
  return line;
}

function invalid(message: string): ServerError {
  return new ServerError("config_invalid", message);
}
