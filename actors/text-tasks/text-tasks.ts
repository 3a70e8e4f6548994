// TextTasks: typed calls of the tasks that the generation thread runs on its pool of text workers. Converts task errors to errors
// for the client. The generation thread itself processes only the output of models, not client texts.
import type { GenerateRequest } from "../../engines/generation.ts";
import type { PreparedMedia } from "../../engines/media/media-tokens.ts";
import { ServerError } from "../../runtime/errors.ts";
import { type EndReason, TaskEnded } from "../../runtime/task/task.ts";
import type { TaskPoolStatistics, TaskRequest } from "../../runtime/task/task-pool.ts";
import { clockFactors } from "../../runtime/task/work-time.ts";
import type { BodyToTranslate, TranslatedBody } from "../api/body-translators.ts";
import type { ConvertedTokens, EmbedInputs, TokensRequest } from "../api/inference.ts";
import { movedWith } from "../api/sealed-content.ts";
import type { AttachedModel, EndedTask, ModelFiles, TextStatistics } from "../messages.ts";
import { demandDigest, EndedTasks, requestDigest } from "./ended-tasks.ts";
import type { OutputChecks, PreparedPrompt } from "./prepare.ts";
import type { TextTaskKind, TextTaskTypes, TokenizedInputs } from "./text-handlers.ts";
import type { TextSource } from "./text-model.ts";
import type { TextPhase } from "./text-phase.ts";

/** The members of a task pool that this module uses. */
export interface TaskRunner {
  readonly statistics: TaskPoolStatistics;
  share(key: string, value: unknown): Promise<unknown>;
  unshare(key: string): void;
  run(request: TaskRequest): Promise<unknown>;
  close(): Promise<void> | void;
}

export interface TextTaskLimits {
  readonly seconds: number;
  /** Time limit in seconds for reading and opening a model. */
  readonly loadSeconds: number;
  readonly heapMiB: number;
}

export class TextTasks {
  readonly #runner: TaskRunner;
  readonly #limits: TextTaskLimits;
  readonly #onEnded: (task: EndedTask) => void;
  readonly #endedTasks = new EndedTasks();
  readonly #ended = { time: 0, memory: 0, crash: 0 };
  #nextKey = 1;

  /** `onEnded`: called for each task of a request that was aborted because of its time, its memory or a crash. */
  constructor(runner: TaskRunner, limits: TextTaskLimits, onEnded: (task: EndedTask) => void = () => {}) {
    this.#runner = runner;
    this.#limits = limits;
    this.#onEnded = onEnded;
  }

  get statistics(): TextStatistics {
    return { ...this.#runner.statistics, ended: { ...this.#ended } };
  }

  /** Reads a model's files. Throws `model_file_invalid`. */
  async read(model: Pick<AttachedModel, "id" | "path" | "chatTemplate" | "jinjaExplicit">): Promise<ModelFiles> {
    const { id, path, chatTemplate, jinjaExplicit } = model;
    const input: TextTaskTypes["read"]["input"] = { path, chatTemplate, jinjaExplicit };
    try {
      // Each model counts as a separate client, so that a slow template does not delay other models.
      const limitMs = this.#limits.loadSeconds * 1000;
      return (await this.#runner.run({
        kind: "read",
        input,
        client: `model ${id}`,
        limitMs,
        isLoad: true,
      })) as ModelFiles;
    } catch (error) {
      throw error instanceof TaskEnded ? this.#unusable(id, error) : error;
    }
  }

  /** Opens a model on the workers. Returns the key with which tasks refer to the model. Throws `model_file_invalid`. */
  async open(source: TextSource): Promise<string> {
    const key = `${source.id} #${this.#nextKey++}`;
    try {
      await this.#runner.share(key, source);
    } catch (error) {
      throw error instanceof TaskEnded ? this.#unusable(source.id, error) : error;
    }
    return key;
  }

  close(key: string): void {
    this.#runner.unshare(key);
  }

  /** Prepares a request. Throws the request's validation error. */
  prepare(
    key: string,
    request: GenerateRequest,
    signal: AbortSignal,
    media: readonly PreparedMedia[] = [],
  ): Promise<PreparedPrompt> {
    return this.#ofRequest("prepare", key, request, media, signal);
  }

  /** Returns the number of prompt tokens. Throws the request's validation error. */
  countTokens(
    key: string,
    request: GenerateRequest,
    signal: AbortSignal,
    media: readonly PreparedMedia[] = [],
  ): Promise<number> {
    return this.#ofRequest("count", key, request, media, signal);
  }

  /** Returns the tokens of inputs to embed, or to score against a query. Throws `context_length_exceeded`, `invalid_value`. */
  tokenize(
    key: string,
    inputs: EmbedInputs,
    options: {
      readonly query?: string | undefined;
      readonly inputType?: string | undefined;
      readonly role?: "query" | "document" | undefined;
      readonly truncates: boolean;
      readonly client: string;
      readonly signal: AbortSignal;
    },
  ): Promise<TokenizedInputs> {
    const { query, inputType, role, truncates, client, signal } = options;
    return this.#run("tokenize", { key, inputs, truncates, query, inputType, role }, { client, signal, needs: key });
  }

  /** Converts text to tokens, or tokens to text. Throws `invalid_value`, and the validation errors of a chat. */
  convertTokens(key: string, request: TokensRequest, signal: AbortSignal): Promise<ConvertedTokens> {
    const { client, source, wantsPieces } = request;
    return this.#run("convert", { key, source, wantsPieces }, { client, signal, needs: key });
  }

  /** Returns why an output violates its constraints; null = it is valid. `call`: name of the called tool; null = the text is content. */
  check(checks: OutputChecks, text: string, call: string | null, client: string): Promise<string | null> {
    return this.#run("check", { asked: checks.asked, text, call }, { client });
  }

  /** Translates a request body. The value has the type that the body's API defines. */
  translate(message: BodyToTranslate, signal: AbortSignal): Promise<TranslatedBody> {
    const { client, body } = message;
    return this.#run("translate", message, { client, signal, transfer: [body.buffer as ArrayBuffer] });
  }

  async #ofRequest<K extends "prepare" | "count">(
    kind: K,
    key: string,
    { media: _sources, ...request }: GenerateRequest,
    media: readonly PreparedMedia[],
    signal: AbortSignal,
  ): Promise<TextTaskTypes[K]["output"]> {
    const digests = {
      request: requestDigest(kind, request),
      demand: kind === "prepare" ? demandDigest(request) : null,
    };
    this.#endedTasks.check(digests.request);
    this.#endedTasks.check(digests.demand);
    const transfer = movedWith(request);
    const options = { client: request.client, signal, needs: key, ...(transfer.length > 0 && { transfer }) };
    try {
      return await this.#run(kind, { key, request, media }, options);
    } catch (error) {
      // A repetition of this request will be rejected at once, by its digest. The cost of translating a grammar does not depend
      // on the prompt, so after a failure in the phase `grammar` the digest does not include the prompt.
      if (error instanceof RefusedTask) {
        this.#endedTasks.add(error.phase === "grammar" ? digests.demand : digests.request, error);
      }
      throw error;
    }
  }

  async #run<K extends TextTaskKind>(
    kind: K,
    input: TextTaskTypes[K]["input"],
    options: Omit<TaskRequest, "kind" | "input">,
  ): Promise<TextTaskTypes[K]["output"]> {
    try {
      return (await this.#runner.run({ kind, input, ...options })) as TextTaskTypes[K]["output"];
    } catch (error) {
      if (!(error instanceof TaskEnded)) throw error;
      const refusal = this.#worded(error);
      this.#ended[error.reason]++;
      this.#onEnded({ client: options.client, reason: refusal.message });
      throw refusal;
    }
  }

  #worded({ reason, phase, cause }: TaskEnded): ServerError {
    const what = subjects[phase as TextPhase] ?? subjects.body;
    if (reason === "crash") {
      const message = "the thread that read the request ended; send the request again";
      return new ServerError("peer_gone", message, { cause });
    }
    const message = `${what} takes more than ${this.#limitOf(reason)}; make it smaller or simpler`;
    return new RefusedTask(message, phase);
  }

  #unusable(id: string, { reason, phase, cause }: TaskEnded): ServerError {
    this.#ended[reason]++;
    if (reason === "crash") {
      return new ServerError("peer_gone", `a thread ended while it read the vocabulary of model "${id}"`, { cause });
    }
    const { loadSeconds } = this.#limits;
    const times = `${loadSeconds} s of processor time, or ${clockFactors.load * loadSeconds} s in all`;
    const limit = reason === "time" ? times : this.#limitOf(reason);
    const what = phase === "template" ? subjects.template : subjects.model;
    const message = `model "${id}" cannot be served: ${what} takes more than ${limit}; correct the file, or name another chat_template`;
    return new ServerError("model_file_invalid", message, { cause });
  }

  #limitOf(reason: EndReason): string {
    const { seconds, heapMiB } = this.#limits;
    return reason === "time" ? `${seconds} s (text_task_secs)` : `${heapMiB} MiB of memory (text_task_memory)`;
  }
}

/** Error of a task that took too much time or memory. The request is rejected with it. */
export class RefusedTask extends ServerError {
  /** The phase that took too much time or memory. */
  readonly phase: string;

  constructor(message: string, phase: string) {
    super("unsupported", message);
    this.phase = phase;
  }
}

const subjects: Readonly<Record<TextPhase, string>> = {
  body: "reading the body",
  messages: "writing the messages as a prompt",
  grammar: "translating the grammar or the tools' schemas",
  input: "tokenizing the input",
  check: "checking the output against its schema",
  model: "reading its vocabulary and its chat template",
  template: "test-rendering its chat template",
};
