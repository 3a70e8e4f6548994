// Python starter: finds the configured interpreter and starts it with the driver in the sandbox.
import { spawnSync } from "node:child_process";
import { ServerError } from "../../../runtime/errors.ts";
import { innerWorkFolder } from "../../../runtime/sandbox/linux/bubblewrap.ts";
import type { Sandbox } from "../../../runtime/sandbox/sandbox.ts";
import { innerSkillsFolder } from "../files/session-skills.ts";
import { foldersOf, type WorkFolder } from "../files/work-folders.ts";
import { driverSource } from "./driver.ts";
import { Interpreter } from "./interpreter.ts";

const FIND_MS = 20_000;
/** Paths at which bubblewrap mounts the session's folders, hiding what is there on the host. */
const covered = ["/tmp", innerWorkFolder, innerSkillsFolder];
const question = "import sys, json; print(json.dumps([sys.executable, sys.base_prefix, sys.prefix]))";

export class PythonStarter {
  readonly #sandbox: Sandbox;
  readonly #executable: string;
  readonly #readable: readonly string[];

  private constructor(sandbox: Sandbox, executable: string, readable: readonly string[]) {
    this.#sandbox = sandbox;
    this.#executable = executable;
    this.#readable = readable;
  }

  /** Finds the interpreter. Throws config_invalid if the command is not Python 3, or if the sandbox would hide its folder. */
  static find(command: string, sandbox: Sandbox): PythonStarter {
    const { executable, prefixes } = installationOf(command);
    const readable = [...new Set(prefixes)].filter((prefix) => prefix !== "/usr");
    const hidden = readable.find((path) => covered.some((folder) => `${path}/`.startsWith(`${folder}/`)));
    if (sandbox.isolation.kind === "bubblewrap" && hidden !== undefined) {
      throw invalid(
        `code_exec_python expects a Python outside of ${covered.join(" and ")}, where tools see folders of their own; got ${hidden}`,
      );
    }
    return new PythonStarter(sandbox, executable, readable);
  }

  start(folder: WorkFolder): Interpreter {
    return new Interpreter(
      this.#sandbox.launch({
        argv: [this.#executable, "-u", "-c", driverSource],
        ...foldersOf(folder),
        environment: { MPLBACKEND: "Agg", PYTHONDONTWRITEBYTECODE: "1", PYTHONIOENCODING: "utf-8" },
        readable: this.#readable,
        mounted: [folder.skills.mount],
        hasChannel: true,
      }),
    );
  }
}

interface Installation {
  readonly executable: string;
  readonly prefixes: readonly string[];
}

function installationOf(command: string): Installation {
  const found = spawnSync(command, ["-c", question], { timeout: FIND_MS, encoding: "utf8" });
  try {
    const [executable, ...prefixes] = JSON.parse(found.stdout) as [string, ...string[]];
    return { executable, prefixes };
  } catch {
    const reason = found.error?.message ?? (found.stderr.trim().split("\n").at(-1) || `exit code ${found.status}`);
    throw invalid(`code_exec_python expects a command of Python 3; "${command}" failed: ${reason}`);
  }
}

function invalid(message: string): ServerError {
  return new ServerError("config_invalid", message, { param: "code_exec_python" });
}
