// Whisper's decoder: generates the tokens of one window, the most probable one at each step, under Whisper's rules for timestamp tokens.
import { ServerError } from "../../../runtime/errors.ts";
import { float32, int64, type Onnx, type OnnxSession, type OnnxTensor, runSession } from "../../onnx/onnx.ts";
import { floatsOf } from "../../onnx/tensors.ts";
import type { WhisperVocabulary } from "./vocabulary.ts";

/** Maximum number of tokens of a window: half of the decoder's context. */
const maxTokens = 224;
/** Index of the last timestamp token with which a window may begin: 1 s. */
const maxFirstTime = 50;

export interface DecoderShape {
  readonly layers: number;
  readonly heads: number;
  readonly headLength: number;
}

export interface Suppressed {
  /** Tokens that are never generated, and tokens that are not generated as the first one. */
  readonly always: readonly number[];
  readonly first: readonly number[];
}

export interface WindowText {
  readonly tokens: readonly number[];
  readonly averageLogprob: number;
  readonly noSpeech: number;
}

type Tensors = Record<string, OnnxTensor>;

export class WhisperDecoder {
  readonly #onnx: Onnx;
  readonly #session: OnnxSession;
  readonly #vocabulary: WhisperVocabulary;
  readonly #suppressed: Suppressed;
  readonly #shape: DecoderShape;
  readonly #caches: readonly string[];

  constructor(
    onnx: Onnx,
    session: OnnxSession,
    vocabulary: WhisperVocabulary,
    suppressed: Suppressed,
    shape: DecoderShape,
  ) {
    this.#onnx = onnx;
    this.#session = session;
    this.#vocabulary = vocabulary;
    this.#suppressed = suppressed;
    this.#shape = shape;
    this.#caches = Array.from({ length: shape.layers }, (_, layer) =>
      ["decoder", "encoder"].flatMap((part) => ["key", "value"].map((kind) => `${layer}.${part}.${kind}`)),
    ).flat();
  }

  /** Returns the most probable language of a window. */
  async languageOf(encoded: OnnxTensor): Promise<string> {
    const { logits } = await this.#first([this.#vocabulary.start], encoded);
    const entries = [...this.#vocabulary.languages];
    const [best] = entries.toSorted(([, a], [, b]) => (logits[b] ?? -Infinity) - (logits[a] ?? -Infinity));
    return best?.[0] ?? "en";
  }

  async write(encoded: OnnxTensor, language: string, translates: boolean, signal: AbortSignal): Promise<WindowText> {
    const words = this.#vocabulary;
    const languageToken = words.languages.get(language);
    const task = translates ? words.translate : words.transcribe;
    const prompt = [words.start, ...(languageToken === undefined ? [] : [languageToken]), task];
    let { logits, cache, noSpeech } = await this.#first(prompt, encoded);
    const tokens: number[] = [];
    let sum = 0;
    while (tokens.length < maxTokens) {
      const { token, logprob } = this.#choose(logits, tokens);
      sum += logprob;
      if (token === words.end) break;
      tokens.push(token);
      if (signal.aborted) throw new ServerError("cancelled", "the request was cancelled");
      ({ logits, cache } = await this.#next(token, encoded, cache));
    }
    return { tokens, averageLogprob: sum / (tokens.length + 1), noSpeech };
  }

  async #first(prompt: readonly number[], encoded: OnnxTensor) {
    const { heads, headLength } = this.#shape;
    const empty = float32(this.#onnx, new Float32Array(0), [1, heads, 0, headLength]);
    const caches = Object.fromEntries(this.#caches.map((name) => [`past_key_values.${name}`, empty]));
    const outputs = await runSession(this.#session, {
      input_ids: int64(this.#onnx, prompt, [1, prompt.length]),
      encoder_hidden_states: encoded,
      ...caches,
      use_cache_branch: new this.#onnx.Tensor("bool", Uint8Array.of(0), [1]),
    });
    const all = floatsOf(outputs, "logits");
    const length = all.length / prompt.length;
    const { noSpeech } = this.#vocabulary;
    const cache: Tensors = {};
    for (const name of this.#caches) cache[`past_key_values.${name}`] = outputs[`present.${name}`] as OnnxTensor;
    return {
      logits: all.subarray(all.length - length),
      cache,
      noSpeech: noSpeech === null ? 0 : probabilityOf(all.subarray(0, length), noSpeech),
    };
  }

  async #next(token: number, encoded: OnnxTensor, cache: Tensors) {
    const changing = this.#caches.filter((name) => name.includes(".decoder."));
    const feeds = {
      input_ids: int64(this.#onnx, [token], [1, 1]),
      encoder_hidden_states: encoded,
      ...cache,
      use_cache_branch: new this.#onnx.Tensor("bool", Uint8Array.of(1), [1]),
    };
    const outputs = await runSession(this.#session, feeds, ["logits", ...changing.map((name) => `present.${name}`)]);
    const next: Tensors = { ...cache };
    for (const name of changing) next[`past_key_values.${name}`] = outputs[`present.${name}`] as OnnxTensor;
    return { logits: floatsOf(outputs, "logits"), cache: next };
  }

  /** Chooses the most probable token. Changes the logits of tokens that are not allowed. */
  #choose(logits: Float32Array, tokens: readonly number[]): { readonly token: number; readonly logprob: number } {
    const words = this.#vocabulary;
    const forbid = (from: number, to: number): void => void logits.fill(Number.NEGATIVE_INFINITY, from, to);
    for (const token of this.#suppressed.always) forbid(token, token + 1);
    if (tokens.length === 0) for (const token of this.#suppressed.first) forbid(token, token + 1);
    forbid(words.noTimestamps, words.noTimestamps + 1);
    this.#keepTimesInPairs(tokens, forbid);
    const text = logProbabilities(logits, 0, words.firstTime);
    const times = logProbabilities(logits, words.firstTime, logits.length);
    const total = Math.max(text.sum, times.sum) + Math.log1p(Math.exp(-Math.abs(text.sum - times.sum)));
    // A timestamp is chosen if all timestamps together are more probable than the most probable text token.
    const isTime = times.sum > text.largest;
    const { at, largest } = isTime ? times : text;
    return { token: at, logprob: largest - (isTime ? times.sum : total) };
  }

  /** Forbids tokens that break the rules: timestamps come in pairs, never decrease, and the first one is near the window's beginning. */
  #keepTimesInPairs(tokens: readonly number[], forbid: (from: number, to: number) => void): void {
    const words = this.#vocabulary;
    const all = Number.POSITIVE_INFINITY;
    if (tokens.length === 0) {
      forbid(0, words.firstTime);
      forbid(words.firstTime + maxFirstTime + 1, all);
      return;
    }
    const isTime = words.isTime(tokens.at(-1) ?? 0);
    const isSecond = tokens.length < 2 || words.isTime(tokens.at(-2) ?? 0);
    if (isTime && isSecond) forbid(words.firstTime, all);
    else if (isTime) forbid(0, words.end);
    const last = tokens.findLast((token) => words.isTime(token));
    if (last !== undefined) forbid(words.firstTime, isTime && !isSecond ? last : last + 1);
  }
}

/** Returns the logarithm of the sum of the exponentials of logits, and the largest logit. */
function logProbabilities(logits: Float32Array, from: number, to: number) {
  let [at, largest] = [from, Number.NEGATIVE_INFINITY];
  for (let i = from; i < to; i++) {
    const value = logits[i] as number;
    if (value > largest) [at, largest] = [i, value];
  }
  if (largest === Number.NEGATIVE_INFINITY) return { at, largest, sum: largest };
  let sum = 0;
  for (let i = from; i < to; i++) sum += Math.exp((logits[i] as number) - largest);
  return { at, largest, sum: largest + Math.log(sum) };
}

function probabilityOf(logits: Float32Array, token: number): number {
  return Math.exp((logits[token] ?? Number.NEGATIVE_INFINITY) - logProbabilities(logits, 0, logits.length).sum);
}
