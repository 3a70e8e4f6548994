// Vocabulary of a Whisper model: the texts of its tokens, and its control tokens. Timestamp tokens stand for a time in the window.
import { readFile } from "node:fs/promises";
import { z } from "zod";
import { ServerError } from "../../../runtime/errors.ts";

const tokenizerFile = z.object({
  model: z.object({ vocab: z.record(z.string(), z.int().min(0)) }),
  added_tokens: z.array(z.object({ id: z.int().min(0), content: z.string() })),
});

/** Number of timestamp tokens per second. */
const timesPerSecond = 50;
const languageToken = /^<\|([a-z]{2,3})\|>$/;

export class WhisperVocabulary {
  readonly start: number;
  readonly end: number;
  readonly transcribe: number;
  readonly translate: number;
  readonly noTimestamps: number;
  /** Token of a window without speech; null if the model has none. */
  readonly noSpeech: number | null;
  /** Timestamp token of 0.00 s. Later timestamps follow in steps of 0.02 s. */
  readonly firstTime: number;
  /** Tokens of the languages, by code. */
  readonly languages: ReadonlyMap<string, number>;
  readonly #bytes: ReadonlyMap<number, Uint8Array>;

  private constructor({ model, added_tokens }: z.output<typeof tokenizerFile>, path: string) {
    const added = new Map(added_tokens.map(({ id, content }) => [content, id]));
    const control = (name: string): number => {
      const id = added.get(`<|${name}|>`) ?? model.vocab[`<|${name}|>`];
      if (id !== undefined) return id;
      throw new ServerError("model_file_invalid", `"${path}" expects the token <|${name}|> of Whisper; it has none`);
    };
    this.end = control("endoftext");
    this.start = control("startoftranscript");
    this.transcribe = control("transcribe");
    this.translate = control("translate");
    this.noTimestamps = control("notimestamps");
    this.noSpeech = added.get("<|nospeech|>") ?? added.get("<|nocaptions|>") ?? null;
    this.firstTime = this.noTimestamps + 1;
    const languages = [...added].flatMap(([content, id]) => {
      const code = languageToken.exec(content)?.[1];
      return code === undefined ? [] : [[code, id] as const];
    });
    this.languages = new Map(languages.sort(([, a], [, b]) => a - b));
    const byteOf = bytesOfSigns();
    this.#bytes = new Map(
      Object.entries(model.vocab)
        .filter(([, id]) => id < this.end)
        .map(([signs, id]) => [id, Uint8Array.from([...signs].map((sign) => byteOf.get(sign) ?? 0x3f))]),
    );
  }

  /** Reads a tokenizer.json. Throws `model_file_invalid`. */
  static async read(path: string): Promise<WhisperVocabulary> {
    let value: unknown;
    try {
      value = JSON.parse(await readFile(path, "utf8"));
    } catch (error) {
      throw new ServerError(
        "model_file_invalid",
        `a Whisper model expects "${path}", which cannot be read: ${String(error)}`,
      );
    }
    const { success, data } = tokenizerFile.safeParse(value);
    if (success) return new WhisperVocabulary(data, path);
    throw new ServerError("model_file_invalid", `"${path}" is not the tokenizer of a Whisper model`);
  }

  isTime(token: number): boolean {
    return token >= this.firstTime;
  }

  /** Returns the seconds of a timestamp token. */
  secondsOf(token: number): number {
    return (token - this.firstTime) / timesPerSecond;
  }

  /** Returns the text of tokens, without control tokens and timestamps. */
  textOf(tokens: readonly number[]): string {
    const pieces = tokens.flatMap((token) => this.#bytes.get(token) ?? []);
    return new TextDecoder().decode(Buffer.concat(pieces));
  }
}

/** Returns the byte that each character of a byte-level vocabulary stands for. */
function bytesOfSigns(): ReadonlyMap<string, number> {
  const isPlain = (byte: number) => (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  const signs = new Map<string, number>();
  let others = 0;
  for (let byte = 0; byte < 256; byte++) signs.set(String.fromCodePoint(isPlain(byte) ? byte : 256 + others++), byte);
  return signs;
}
