// GrammarEngine: loads and wraps the library @mlc-ai/web-xgrammar (WebAssembly). It passes the vocabulary to the
// library and captures the error messages that the library prints before it aborts. Only grammar threads load the
// library, because it must not be used again after a failure.
import type { CompiledGrammar, GrammarCompiler, GrammarMatcher } from "@mlc-ai/web-xgrammar";
import type { GrammarSource } from "../../../grammar-source.ts";
import { type Library, loadLibrary } from "./load-library.ts";

/** The types of WebAssembly that are used here. Neither the es2023 library nor Node's types declare them. */
interface WasmMemory {
  readonly buffer: ArrayBuffer;
  grow(pages: number): number;
}
declare const WebAssembly: { readonly Memory: { readonly prototype: WasmMemory } };

const pageBytes = 65_536;
/** Maximum memory in bytes of grammars and matchers, not counting the memory of the vocabulary. */
const memoryLimitBytes = 256 * 2 ** 20;
/** Memory in bytes above which the thread gets no new grammars and is ended when it is idle. */
const memoryFullBytes = memoryLimitBytes / 2;

export class GrammarEngine {
  readonly #library: Library;
  readonly #compiler: GrammarCompiler;
  readonly #meter: MemoryMeter;
  readonly #lastWords: string[];

  /**
   * Loads the engine for a vocabulary. `pieces`: the bytes of each token; empty if the token is not text. `ends`:
   * tokens that are allowed when the grammar may end.
   */
  static async load(pieces: readonly Uint8Array[], ends: readonly number[]): Promise<GrammarEngine> {
    const lastWords: string[] = [];
    console.error = (...words: unknown[]) => lastWords.push(words.join(" "));
    console.log = () => undefined;
    const meter = new MemoryMeter();
    const library = await loadLibrary();
    const compiler = await compilerFor(library, pieces, ends);
    meter.limit(memoryLimitBytes);
    return new GrammarEngine(library, compiler, meter, lastWords);
  }

  private constructor(library: Library, compiler: GrammarCompiler, meter: MemoryMeter, lastWords: string[]) {
    this.#library = library;
    this.#compiler = compiler;
    this.#meter = meter;
    this.#lastWords = lastWords;
  }

  /**
   * Returns an engine for a vocabulary with other pieces. The two engines share the library and the memory limit. After
   * a failure, neither may be used.
   */
  async withPieces(pieces: readonly Uint8Array[], ends: readonly number[]): Promise<GrammarEngine> {
    this.#lastWords.length = 0;
    const compiler = await compilerFor(this.#library, pieces, ends);
    return new GrammarEngine(this.#library, compiler, this.#meter, this.#lastWords);
  }

  get isFull(): boolean {
    return this.#meter.grownBytes > memoryFullBytes;
  }

  /** Compiles a grammar. May throw any value; `explain` converts it to a reason for the client. */
  compile(source: GrammarSource): Promise<CompiledGrammar> {
    this.#lastWords.length = 0;
    return this.#compiler.compileGrammar(source.grammar);
  }

  /** Frees the caches of the engine. Compiled grammars remain usable. */
  dispose(): void {
    this.#compiler.dispose();
  }

  match(grammar: CompiledGrammar): Promise<GrammarMatcher> {
    return this.#library.GrammarMatcher.createGrammarMatcher(grammar);
  }

  /**
   * Returns the reason for an error of the engine, for the client: the message that the engine printed, if there is
   * one.
   */
  explain(thrown: unknown): string {
    if (this.#meter.hasRefused) return `it takes more than ${memoryLimitBytes / 2 ** 20} MiB of memory`;
    const words = this.#lastWords.map(withoutPlace).filter((line) => !line.startsWith("Aborted("));
    if (words.length > 0) return words.join("; ");
    return thrown instanceof Error ? thrown.message : "the grammar engine gives no reason";
  }
}

async function compilerFor(library: Library, pieces: readonly Uint8Array[], ends: readonly number[]) {
  // The library declares the vocabulary as strings, which cannot represent every byte sequence, but it accepts raw
  // bytes.
  const vocabulary = pieces as unknown as string[];
  const info = await library.TokenizerInfo.createTokenizerInfo(vocabulary, "raw", false, pieces.length, [...ends]);
  // `false` turns off the engine's own cache, because its size is unlimited.
  const compiler = await library.GrammarCompiler.createGrammarCompiler(info, false);
  info.dispose();
  return compiler;
}

/** Removes the engine's source file and line number from an error message. */
function withoutPlace(line: string): string {
  return line.replace(/^\[FATAL\] \S+:\d+: /, "").trim();
}

/**
 * Limits the memory of the engine, which is the only WebAssembly memory that grows on its thread. The engine's own
 * limit of 2 GiB is too high: a grammar that never lets its text end would fill all of it.
 */
class MemoryMeter {
  grownBytes = 0;
  hasRefused = false;
  #limitBytes = Number.POSITIVE_INFINITY;

  constructor() {
    const meter = this;
    const { prototype } = WebAssembly.Memory;
    const grow = prototype.grow;
    prototype.grow = function (this: WasmMemory, pages: number): number {
      meter.#count(pages * pageBytes);
      return grow.call(this, pages);
    };
  }

  /** Allows the memory to grow by at most `bytes` from now on. */
  limit(bytes: number): void {
    this.grownBytes = 0;
    this.#limitBytes = bytes;
  }

  /**
   * Counts growth and throws above the limit. `hasRefused` describes only the last call, because the engine first
   * requests more memory than it needs, and after a rejection requests less.
   */
  #count(bytes: number): void {
    this.hasRefused = this.grownBytes + bytes > this.#limitBytes;
    if (this.hasRefused) throw new RangeError("the grammar engine's memory is full");
    this.grownBytes += bytes;
  }
}
