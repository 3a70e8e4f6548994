// Text encoders: turn a prompt into the states that the U-Net reads. SDXL has two encoders, whose states are concatenated, and a pooled
// state of the second encoder.
import { join } from "node:path";
import { ServerError } from "../../runtime/errors.ts";
import { type Onnx, type OnnxSession, openSession, runSession } from "../onnx/onnx.ts";
import { floatsOf, inputsOf, type OnnxPort, tensorFor } from "../onnx/tensors.ts";
import { ClipTokenizer } from "./clip-tokenizer.ts";
import { type DiffusionFolder, partFile } from "./model-folder.ts";

/** An encoded prompt. */
export interface EncodedPrompt {
  /** `length` rows of `width` floats. */
  readonly states: Float32Array;
  readonly length: number;
  readonly width: number;
  /** Pooled state of the second encoder; null if there is none. */
  readonly pooled: Float32Array | null;
  /** Number of tokens of the text, including the begin and end tokens. */
  readonly tokens: number;
}

export class TextEncoders {
  readonly #encoders: readonly TextEncoder[];

  private constructor(encoders: readonly TextEncoder[]) {
    this.#encoders = encoders;
  }

  static async open(onnx: Onnx, folder: DiffusionFolder, threads: number): Promise<TextEncoders> {
    const first = await TextEncoder.open(onnx, folder, "", threads);
    return new TextEncoders(folder.isXl ? [first, await TextEncoder.open(onnx, folder, "_2", threads)] : [first]);
  }

  /** Encodes a prompt; `param`: name of its field in errors. */
  async encode(text: string, truncates: boolean, param: string): Promise<EncodedPrompt> {
    const [first, second] = this.#encoders as readonly [TextEncoder, TextEncoder | undefined];
    const one = await first.encode(text, truncates, param);
    if (second === undefined) return one;
    const two = await second.encode(text, truncates, param);
    if (one.length !== two.length) {
      const message = `the text encoders have ${one.length} and ${two.length} tokens; expected equal numbers`;
      throw new ServerError("model_file_invalid", message);
    }
    return { ...one, states: sideBySide(one, two), width: one.width + two.width, pooled: two.pooled };
  }

  async dispose(): Promise<void> {
    for (const encoder of this.#encoders) await encoder.session.release();
  }
}

class TextEncoder {
  readonly session: OnnxSession;
  readonly #onnx: Onnx;
  readonly #tokenizer: ClipTokenizer;
  readonly #port: OnnxPort;
  readonly #statesName: string;
  readonly #pooledName: string | null;

  private constructor(
    onnx: Onnx,
    session: OnnxSession,
    tokenizer: ClipTokenizer,
    folder: DiffusionFolder,
    part: string,
  ) {
    this.#onnx = onnx;
    this.session = session;
    this.#tokenizer = tokenizer;
    const file = partFile(folder.path, part);
    const [port, ...more] = inputsOf(session);
    if (port?.name !== "input_ids" || more.length > 0) {
      const message = `"${file}" expects the inputs ${session.inputNames.join(", ").slice(0, 200)}; expected only input_ids`;
      throw new ServerError("model_file_invalid", message);
    }
    this.#port = port;
    const names = session.outputNames;
    // SDXL was trained on the states before the last layer.
    const layers = names.filter((name) => name.startsWith("hidden_states."));
    const states = folder.isXl ? layers.at(-2) : names.find((name) => name === "last_hidden_state");
    this.#statesName = required(states, file, folder.isXl ? "hidden_states.N" : "last_hidden_state", names);
    const pooled = names.find((name) => name === "text_embeds");
    this.#pooledName = part === "text_encoder_2" ? required(pooled, file, "text_embeds", names) : null;
  }

  static async open(onnx: Onnx, folder: DiffusionFolder, suffix: string, threads: number): Promise<TextEncoder> {
    const part = `text_encoder${suffix}`;
    const tokenizer = await ClipTokenizer.open(join(folder.path, `tokenizer${suffix}`));
    const session = await openSession(onnx, partFile(folder.path, part), threads);
    return new TextEncoder(onnx, session, tokenizer, folder, part);
  }

  async encode(text: string, truncates: boolean, param: string): Promise<EncodedPrompt> {
    const { tokens, used } = this.#tokenizer.encode(text, truncates, param);
    const outputs = await runSession(this.session, {
      input_ids: tensorFor(this.#onnx, this.#port, tokens, [1, tokens.length]),
    });
    const states = floatsOf(outputs, this.#statesName);
    const { length } = tokens;
    const pooled = this.#pooledName === null ? null : floatsOf(outputs, this.#pooledName);
    return { states, length, width: states.length / length, pooled, tokens: used };
  }
}

function required(found: string | undefined, file: string, wanted: string, names: readonly string[]): string {
  if (found !== undefined) return found;
  const message = `"${file}" has the outputs ${names.join(", ").slice(0, 200)}; expected ${wanted} among them`;
  throw new ServerError("model_file_invalid", message);
}

function sideBySide(one: EncodedPrompt, two: EncodedPrompt): Float32Array {
  const width = one.width + two.width;
  const states = new Float32Array(one.length * width);
  for (let row = 0; row < one.length; row++) {
    states.set(one.states.subarray(row * one.width, (row + 1) * one.width), row * width);
    states.set(two.states.subarray(row * two.width, (row + 1) * two.width), row * width + one.width);
  }
  return states;
}
