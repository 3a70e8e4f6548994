// Reader process: a child process that runs extraction tasks, one at a time. If a task exceeds its time or memory limit, its
// process is killed. Threads are not used, because a thread that exhausts its heap can crash the whole process.
import { type ChildProcess, spawn } from "node:child_process";
import { constants, setPriority } from "node:os";
import { fileURLToPath } from "node:url";
import { fromErrorRecord, ServerError } from "../../../runtime/errors.ts";
import { limitedCommand } from "../../../runtime/program/limited-command.ts";
import type { ReaderAnswer, ReaderTask } from "./tasks.ts";

const heapMiB = 256;
const limitMs = 8000;
/**
 * Number of tasks after which a process is replaced. The kernel limits the CPU time of a process to this number times the time
 * limit of a task.
 */
const maxTasks = 100;
const maxProcessorSeconds = (maxTasks * limitMs) / 1000;

const program = fileURLToPath(new URL("./read-program.js", import.meta.url));

export class ReaderProcess {
  readonly #child: ChildProcess;
  #settle: ((answer: ReaderAnswer) => void) | null = null;
  #tasks = 0;
  #isLate = false;
  #hasEnded = false;

  constructor() {
    const node = [process.execPath, `--max-old-space-size=${heapMiB}`, program] as const;
    const [file, ...args] = limitedCommand(node, maxProcessorSeconds);
    this.#child = spawn(file, args, {
      env: {},
      stdio: ["ignore", "ignore", "ignore", "ipc"],
      serialization: "advanced",
    });
    // Lower priority, because models and requests are more important.
    if (this.#child.pid !== undefined) setPriority(this.#child.pid, constants.priority.PRIORITY_BELOW_NORMAL);
    this.#child.on("message", (answer: ReaderAnswer) => this.#answer(answer));
    this.#child.on("exit", (_code, signal) => this.#ended(signal));
    this.#child.on("error", () => this.#ended(null));
  }

  /** Whether the process can accept another task. */
  get isUsable(): boolean {
    return !this.#hasEnded && this.#tasks < maxTasks;
  }

  /** Runs a task. Rejects with unsupported if the task fails or is killed. */
  async run(task: ReaderTask): Promise<unknown> {
    this.#tasks++;
    const answered = new Promise<ReaderAnswer>((resolve) => {
      this.#settle = resolve;
    });
    const timer = setTimeout(() => {
      this.#isLate = true;
      this.end();
    }, limitMs);
    this.#child.send(task, (error) => {
      if (error !== null) this.#ended(null);
    });
    const answer = await answered;
    clearTimeout(timer);
    if ("error" in answer) throw fromErrorRecord(answer.error);
    return answer.value;
  }

  end(): void {
    this.#child.kill("SIGKILL");
  }

  #answer(answer: ReaderAnswer): void {
    this.#settle?.(answer);
    this.#settle = null;
  }

  #ended(signal: NodeJS.Signals | null): void {
    this.#hasEnded = true;
    const reason = this.#isLate
      ? `it takes more than ${limitMs / 1000} s`
      : signal === "SIGABRT" || signal === "SIGTRAP"
        ? `it takes more than ${heapMiB} MiB of memory`
        : "the process that reads it has ended";
    const { code, message } = new ServerError("unsupported", `the page cannot be read: ${reason}`);
    this.#answer({ error: { code, message } });
  }
}
