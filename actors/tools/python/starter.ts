// Python starter: finds the interpreter of the settings and starts it with the driver in the sandbox.
import { spawnSync } from "node:child_process";
import { ServerError } from "../../../runtime/errors.ts";
import type { Sandbox } from "../../../runtime/sandbox/sandbox.ts";
import type { WorkFolder } from "../files/work-folders.ts";
import { driverSource } from "./driver.ts";
import { Interpreter } from "./interpreter.ts";

const FIND_MS = 20_000;
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

  /** Finds the interpreter. Throws config_invalid if the command is not Python 3. */
  static find(command: string, sandbox: Sandbox): PythonStarter {
    const found = spawnSync(command, ["-c", question], { timeout: FIND_MS, encoding: "utf8" });
    try {
      const [executable, ...prefixes] = JSON.parse(found.stdout) as [string, ...string[]];
      return new PythonStarter(
        sandbox,
        executable,
        [...new Set(prefixes)].filter((prefix) => prefix !== "/usr"),
      );
    } catch {
      const reason = found.error?.message ?? (found.stderr.trim().split("\n").at(-1) || `exit code ${found.status}`);
      throw new ServerError(
        "config_invalid",
        `code_exec_python expects a command of Python 3; "${command}" failed: ${reason}`,
        {
          param: "code_exec_python",
        },
      );
    }
  }

  start(folder: WorkFolder): Interpreter {
    return new Interpreter(
      this.#sandbox.launch({
        argv: [this.#executable, "-u", "-c", driverSource],
        workFolder: folder.path,
        environment: { MPLBACKEND: "Agg", PYTHONDONTWRITEBYTECODE: "1", PYTHONIOENCODING: "utf-8" },
        readable: this.#readable,
        hasChannel: true,
      }),
    );
  }
}
