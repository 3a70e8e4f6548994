// GPU model: a model that web-llm runs on the GPU of this machine. Answers are generated one at a time, because web-llm
// supports only one sequence.
import { MLCEngine, modelVersion } from "@mlc-ai/web-llm";
import type { ChatConfig } from "@mlc-ai/web-llm/lib/config.js";
import type {
  ChatCompletionChunk,
  ChatCompletionRequestStreaming,
} from "@mlc-ai/web-llm/lib/openai_api_protocols/chat_completion.js";
import type { InitProgressReport } from "@mlc-ai/web-llm/lib/types.js";
import { defaultsOf, type GenerationDefaults } from "../../engines/sampling-defaults.ts";
import { AnswerMemory } from "../../http/shared/answer/answer-memory.ts";
import { ServerError } from "../../runtime/errors.ts";
import { Answer } from "../answer.ts";
import type { GpuModelToLoad, LoadedFacts } from "../messages.ts";
import type { RunningModel } from "../serve-page.ts";
import { AnswerParts, NumberedTokens } from "./answer-parts.ts";
import { chatRequest } from "./chat-request.ts";
import { fileAt, modelAddress, serveFiles } from "./file-cache.ts";

/** Fields of mlc-chat-config.json that this module uses. */
type Config = Partial<ChatConfig> & { readonly model_type?: string; readonly quantization?: string };

export class GpuModel implements RunningModel {
  readonly facts: LoadedFacts;
  readonly running: Promise<void>;
  readonly #engine: MLCEngine;
  readonly #name: string;
  readonly #defaults: GenerationDefaults;
  readonly #memory = new AnswerMemory();
  readonly #tokens = new NumberedTokens();
  #fail: (error: unknown) => void = () => {};
  /** Resolves when all earlier answers have ended. */
  #turn: Promise<void> = Promise.resolve();

  /** Loads a model. Throws `config_invalid` if the GPU or the browser cannot run it. */
  static async load(model: GpuModelToLoad, onProgress: (fraction: number) => void): Promise<GpuModel> {
    const { name, files } = model;
    const library = [...files.keys()].find((file) => file.endsWith(".wasm"));
    if (library === undefined) throw new ServerError("model_file_invalid", `${name} has no compiled library (.wasm)`);
    const config = await jsonOf<Config>(files, "mlc-chat-config.json");
    const gpu = await usableGpu(config.quantization ?? "");
    serveFiles(files);
    const context = Math.min(model.context, windowOf(config));
    const engine = new MLCEngine({
      appConfig: {
        model_list: [
          {
            model: modelAddress,
            model_id: name,
            model_lib: modelAddress + library,
            // web-llm accepts either a sliding window or a context window. A model with a sliding window keeps it.
            overrides: (config.sliding_window_size ?? -1) > 0 ? {} : { context_window_size: context },
          },
        ],
      },
      initProgressCallback: ({ progress }: InitProgressReport) => onProgress(progress),
      logLevel: "WARN",
    });
    try {
      await engine.reload(name);
    } catch (error) {
      throw loadProblem(error);
    }
    const list = await jsonOf<{ readonly records: readonly { readonly nbytes: number }[] }>(files, "tensor-cache.json");
    return new GpuModel(engine, name, config, {
      description: [config.model_type, config.quantization].filter((part) => part !== undefined).join(" "),
      engine: `web-llm, ${gpu}`,
      threads: null,
      weightBytes: list.records.reduce((sum, { nbytes }) => sum + nbytes, 0),
      kvCacheBytes: null,
      contextTokens: context,
    });
  }

  private constructor(engine: MLCEngine, name: string, config: Config, facts: LoadedFacts) {
    this.#engine = engine;
    this.#name = name;
    this.facts = facts;
    const { temperature, top_p: topP } = config;
    this.#defaults = defaultsOf(
      {
        ...(temperature !== undefined && { temperature: { value: temperature, origin: "mlc-chat-config.json" } }),
        ...(topP !== undefined && { topP: { value: topP, origin: "mlc-chat-config.json" } }),
      },
      null,
    );
    this.running = new Promise((_resolve, reject) => {
      this.#fail = reject;
    });
  }

  async respond(body: object, signal: AbortSignal, emit: (text: string) => void): Promise<void> {
    const options = { name: this.#name, defaults: this.#defaults, texts: this.#tokens, memory: this.#memory };
    const answer = new Answer(body, options);
    const request = chatRequest(answer.asked);
    let reading: Promise<void> = Promise.resolve();
    const mine = this.#turn.then(() =>
      answer.run(signal, emit, async (take) => {
        signal.throwIfAborted();
        const parts = new AnswerParts(this.#tokens, take);
        const read = this.#read(request, signal, parts);
        reading = read.catch(() => {});
        // web-llm stops only at its next token, which may come long after the user has stopped the answer, so do not wait for
        // it.
        await Promise.race([read, stopped(signal)]);
        return parts.end();
      }),
    );
    this.#turn = mine.then(() => reading);
    await mine;
  }

  /** Reads all chunks of web-llm, even after an abort, because web-llm releases its lock only at the end. */
  async #read(request: ChatCompletionRequestStreaming, signal: AbortSignal, parts: AnswerParts): Promise<void> {
    try {
      const chunks: AsyncIterable<ChatCompletionChunk> = await this.#engine.chat.completions.create(request);
      for await (const chunk of chunks) {
        if (signal.aborted) await this.#engine.interruptGenerate();
        else parts.take(chunk);
      }
    } catch (error) {
      throw this.#answerProblem(error);
    }
  }

  /**
   * Returns the error to report for an error of web-llm. If the GPU was lost, web-llm has unloaded the model, so the model
   * fails.
   */
  #answerProblem(error: unknown): unknown {
    const { name, message } = error as Error;
    if (name === "ContextWindowSizeExceededError") {
      const problem =
        "the conversation is too long: begin another one, or load the model with more tokens on this page";
      return new ServerError("context_length_exceeded", problem, { cause: error });
    }
    if (/NotLoaded|DeviceLost/.test(name) || /device.*(?:lost|destroyed)/i.test(message)) {
      const lost = new ServerError("model_failed", "the GPU is lost: load the model again", { cause: error });
      this.#fail(lost);
      return lost;
    }
    return error;
  }
}

/** Never resolves; rejects when `signal` is aborted. */
async function stopped(signal: AbortSignal): Promise<never> {
  return await new Promise((_resolve, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
}

/** Returns the name of the GPU. Throws `config_invalid` if there is no GPU, or if it does not support the quantization. */
async function usableGpu(quantization: string): Promise<string> {
  const adapter = await navigator.gpu?.requestAdapter({ powerPreference: "high-performance" });
  if (!adapter) {
    const problem =
      "this browser offers no GPU (WebGPU): use a model of this browser without GPU, or one of the server";
    throw new ServerError("config_invalid", problem);
  }
  if (quantization.includes("f16") && !adapter.features.has("shader-f16")) {
    const problem = `the GPU cannot compute with 16-bit floats (shader-f16), which ${quantization} needs: choose a model with f32 in its name`;
    throw new ServerError("config_invalid", problem);
  }
  const { vendor, architecture, description } = adapter.info;
  return description || [vendor, architecture].filter((part) => part !== "").join(" ") || "GPU";
}

/** Returns the maximum length of a conversation in tokens. */
function windowOf({ context_window_size: context = -1, sliding_window_size: sliding = -1 }: Config): number {
  return context > 0 ? context : sliding > 0 ? sliding : Number.MAX_SAFE_INTEGER;
}

function loadProblem(error: unknown): ServerError {
  if (error instanceof ServerError) return error;
  const { name = "", message = String(error) } = error as Error;
  if (
    error instanceof RangeError ||
    name === "DeviceLostError" ||
    /out of memory|buffer.*size|allocat/i.test(message)
  ) {
    const problem =
      "the GPU or the browser has no memory for this: choose a smaller model, or fewer tokens on this page";
    return new ServerError("config_invalid", problem, { cause: error });
  }
  const problem = `web-llm cannot load the model: ${message.slice(0, 300)}. It needs a library (.wasm) of version ${modelVersion}`;
  return new ServerError("config_invalid", problem, { cause: error });
}

async function jsonOf<T>(files: ReadonlyMap<string, Blob>, name: string): Promise<T> {
  const file = fileAt(files, name);
  if (file === undefined) throw new ServerError("model_file_invalid", `the model has no ${name}: copy it again`);
  return JSON.parse(await file.text()) as T;
}
