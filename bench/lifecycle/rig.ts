// Server under test, without HTTP: an inference service with two copies of a model, and clients that stream from both.
// Records how streams end, load times and memory. Reads memory from /proc, so it runs on Linux only.
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { InferenceService } from "../../actors/front/inference-service.ts";
import { parseArguments } from "../../cli/arguments.ts";
import { frontOptions } from "../../cli/assembly/service-options.ts";
import { resolveConfig } from "../../cli/config/config.ts";
import { createProgress } from "../../cli/progress.ts";
import { greedySampling, requestDefaults } from "../../engines/generation.ts";
import { createLogger } from "../../runtime/log/log.ts";
import { endFile, mortalModule } from "../../test/fixtures/actors/mortal-model-place.ts";
import { family, residentKiB } from "../proc.ts";

export interface RigOptions {
  readonly model: string;
  readonly engine: "llama" | "wasm";
  /** Number of streams on each of the two models. */
  readonly streams: number;
}

/** Results of the finished streams of one model. */
export interface Ends {
  whole: number;
  readonly errors: Record<string, number>;
}

interface LogLine {
  readonly msg: string;
  readonly model?: string;
  readonly loadMs?: number;
  readonly enginePid?: number;
}

const answerTokens = 16;

export class Rig {
  readonly first: string;
  readonly second: string;
  readonly front: InferenceService;
  readonly #folder: string;
  readonly #log: LogLine[];
  readonly #done = new AbortController();
  /** Clients wait for this promise before they send a request. */
  #pause: Promise<void> = Promise.resolve();
  #streaming = 0;
  readonly #ends = new Map<string, Ends>();
  #clients: Promise<unknown> = Promise.resolve();

  private constructor(folder: string, models: readonly [string, string], front: InferenceService, log: LogLine[]) {
    [this.first, this.second] = models;
    this.front = front;
    this.#folder = folder;
    this.#log = log;
  }

  static async start({ model, engine, streams }: RigOptions): Promise<Rig> {
    const folder = mkdtempSync(join(tmpdir(), "troupe-bench-"));
    const models = [join(folder, "first.gguf"), join(folder, "second.gguf")] as const;
    for (const copy of models) copyFileSync(model, copy);
    const sizes = ["--max-seqs", String(Math.max(1, streams)), "--max-model-len", "512", "--threads", "2"];
    const argv = ["serve", "-m", models[0], "-m", models[1], "--engine", engine, "--cpu", ...sizes];
    const { flags } = parseArguments(argv);
    const config = resolveConfig({ command: "serve", flags, environment: {}, defaultModel: model });
    const lines: LogLine[] = [];
    const log = createLogger({ level: "info", format: "json" }, { write: (line) => void lines.push(JSON.parse(line)) });
    const progress = createProgress();
    const options = await frontOptions(config, log, progress);
    const front = new InferenceService(
      engine === "wasm" ? { ...options, modelModule: mortalModule(join(folder, "end")) } : options,
    );
    await front.start();
    progress.stop();
    const rig = new Rig(folder, models, front, lines);
    rig.#clients = Promise.all(models.flatMap((id) => Array.from({ length: streams }, () => rig.#stream(id))));
    return rig;
  }

  async stop(): Promise<void> {
    this.#done.abort();
    await this.#clients;
    await this.front.stop(5000);
    rmSync(this.#folder, { recursive: true, force: true });
  }

  /** Returns the results of the streams that have ended since the last call for this model. */
  takeEnds(model: string): Ends {
    const ends = this.#endsOf(model);
    this.#ends.delete(model);
    return ends;
  }

  loadMs(model: string): number {
    return this.#lastLoad(model)?.loadMs ?? 0;
  }

  residentMiB(): number {
    return family([process.pid]).reduce((sum, pid) => sum + residentKiB(pid), 0) / 1024;
  }

  /** Calls `look` while no client streams. */
  async atRest<T>(look: () => T): Promise<T> {
    let goOn = (): void => {};
    this.#pause = new Promise((resolve) => {
      goOn = resolve;
    });
    while (this.#streaming > 0) await sleep(10);
    try {
      return look();
    } finally {
      goOn();
    }
  }

  kill(model: string, signal: NodeJS.Signals): void {
    const { enginePid = 0 } = this.#lastLoad(model) ?? {};
    if (enginePid > 0 && enginePid !== process.pid) process.kill(enginePid, signal);
  }

  endComputeThread(model: string): void {
    writeFileSync(endFile(join(this.#folder, "end"), model), "");
  }

  /** Sends requests until the model answers. Returns the milliseconds this took. */
  async recoveryMs(model: string): Promise<number> {
    const start = performance.now();
    while ((await this.#answer(model, 1)) !== null) await sleep(10);
    return performance.now() - start;
  }

  async #stream(model: string): Promise<void> {
    while (!this.#done.signal.aborted) {
      await this.#pause;
      this.#streaming++;
      const error = await this.#answer(model, answerTokens);
      this.#streaming--;
      const ends = this.#endsOf(model);
      if (error === null) ends.whole++;
      else ends.errors[error] = (ends.errors[error] ?? 0) + 1;
      // Clients wait before they retry, as the error asks them to.
      if (error !== null) await sleep(100);
    }
  }

  /** Returns the error code of a response; null if the response was complete. */
  async #answer(model: string, maxTokens: number): Promise<string | null> {
    const prompt = { kind: "text", text: "Once upon a time" } as const;
    const common = { ...requestDefaults, model, client: "bench", prompt, sampling: greedySampling };
    let end: string | null = "cut";
    for await (const events of this.front.generate(
      { ...common, maxTokens, ignoreEos: true },
      new AbortController().signal,
    )) {
      for (const event of events) {
        if (event.type === "error") end = event.error.code;
        else if (event.type === "done") end = event.usage.completionTokens === maxTokens ? null : "short";
      }
    }
    return end;
  }

  #endsOf(model: string): Ends {
    const ends = this.#ends.get(model) ?? { whole: 0, errors: {} };
    this.#ends.set(model, ends);
    return ends;
  }

  #lastLoad(model: string): LogLine | undefined {
    return this.#log.findLast((line) => line.msg === "model loaded" && line.model === model);
  }
}
