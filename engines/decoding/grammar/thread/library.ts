// The grammar engine (@mlc-ai/web-xgrammar, WebAssembly) on the thread that loads it: loading, its view of the
// vocabulary, and the reasons it gives before it aborts. Only grammar threads load it: after a failure it must not be
// used again.
import type { CompiledGrammar, GrammarCompiler, GrammarMatcher } from "@mlc-ai/web-xgrammar";
import type { GrammarSource } from "../../../grammar-source.ts";

type Library = typeof import("@mlc-ai/web-xgrammar");

/** The part of WebAssembly used here; neither the es2023 library nor Node's types declare it. */
interface WasmMemory {
  readonly buffer: ArrayBuffer;
  grow(pages: number): number;
}
declare const WebAssembly: { readonly Memory: { readonly prototype: WasmMemory } };

const pageBytes = 65_536;
/** Memory of grammars and matchers, beside the vocabulary's. */
const memoryLimitBytes = 256 * 2 ** 20;
/** Above this the thread is replaced as soon as it has no user. */
const memoryFullBytes = memoryLimitBytes / 2;

export class GrammarEngine {
  readonly #library: Library;
  readonly #compiler: GrammarCompiler;
  readonly #meter: MemoryMeter;
  readonly #lastWords: string[];

  /** `pieces` are the bytes of each token, empty if it is not text; `ends` may come where the grammar may end. */
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

  /** The same engine, with its memory and its end, for a vocabulary of other pieces. */
  async withPieces(pieces: readonly Uint8Array[], ends: readonly number[]): Promise<GrammarEngine> {
    this.#lastWords.length = 0;
    const compiler = await compilerFor(this.#library, pieces, ends);
    return new GrammarEngine(this.#library, compiler, this.#meter, this.#lastWords);
  }

  get isFull(): boolean {
    return this.#meter.grownBytes > memoryFullBytes;
  }

  /** May throw any value: `explain` turns it into a reason for the client. */
  compile(source: GrammarSource): Promise<CompiledGrammar> {
    this.#lastWords.length = 0;
    return this.#compiler.compileGrammar(source.grammar);
  }

  /** Frees the engine's caches; compiled grammars remain usable. */
  dispose(): void {
    this.#compiler.dispose();
  }

  match(grammar: CompiledGrammar): Promise<GrammarMatcher> {
    return this.#library.GrammarMatcher.createGrammarMatcher(grammar);
  }

  /** The engine's own reason for an error. */
  explain(thrown: unknown): string {
    if (this.#meter.hasRefused) return `it takes more than ${memoryLimitBytes / 2 ** 20} MiB of memory`;
    const words = this.#lastWords.map(withoutPlace).filter((line) => !line.startsWith("Aborted("));
    if (words.length > 0) return words.join("; ");
    return thrown instanceof Error ? thrown.message : "the grammar engine gives no reason";
  }
}

async function compilerFor(library: Library, pieces: readonly Uint8Array[], ends: readonly number[]) {
  // Typed as strings, which cannot hold every byte sequence; the binding takes raw bytes.
  const vocabulary = pieces as unknown as string[];
  const info = await library.TokenizerInfo.createTokenizerInfo(vocabulary, "raw", false, pieces.length, [...ends]);
  // Not the engine's own cache: it has no bound.
  const compiler = await library.GrammarCompiler.createGrammarCompiler(info, false);
  info.dispose();
  return compiler;
}

/** Removes the position in the engine's source from its message. */
function withoutPlace(line: string): string {
  return line.replace(/^\[FATAL\] \S+:\d+: /, "").trim();
}

/**
 * The package is a script in a folder of modules: imported as a module it writes itself to the global object. It reads
 * its own address from `location` until its WebAssembly is set up.
 */
async function loadLibrary(): Promise<Library> {
  const name = "@mlc-ai/web-xgrammar";
  const global = globalThis as { location?: { readonly href: string } | undefined; xgrammar?: Library };
  global.location = { href: import.meta.resolve(name) };
  await import(name);
  const library = global.xgrammar as Library;
  (await library.Grammar.builtinJSONGrammar()).dispose();
  global.location = undefined;
  return library;
}

/**
 * Bounds the engine's memory, the only one that grows on its thread: its own bound is 2 GiB, and a grammar whose text
 * never ends fills any memory.
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

  /** From now on it may grow by at most this. */
  limit(bytes: number): void {
    this.grownBytes = 0;
    this.#limitBytes = bytes;
  }

  /** The engine asks for more than it needs first, and for less after a refusal. */
  #count(bytes: number): void {
    this.hasRefused = this.grownBytes + bytes > this.#limitBytes;
    if (this.hasRefused) throw new RangeError("the grammar engine's memory is full");
    this.grownBytes += bytes;
  }
}
