// Owns the grammar engine (@mlc-ai/web-xgrammar, WebAssembly) on the thread that loads it: how it is loaded, how it sees the
// vocabulary, and what it says before it aborts. Only grammar threads load it: after a failure it must not be used again.
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
/** Memory that grammars and matchers may take beside the vocabulary's. */
const memoryLimitBytes = 256 * 2 ** 20;
/** Past this a thread is replaced as soon as nobody needs it. */
const memoryFullBytes = memoryLimitBytes / 2;

export class GrammarEngine {
  readonly #library: Library;
  readonly #compiler: GrammarCompiler;
  readonly #meter: MemoryMeter;
  readonly #lastWords: string[];

  /** `pieces` are the bytes of each token, none where it is no text; `ends` may come where the grammar may end. */
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

  /** The same engine, its memory and its end included, for a vocabulary of other pieces. */
  async withPieces(pieces: readonly Uint8Array[], ends: readonly number[]): Promise<GrammarEngine> {
    this.#lastWords.length = 0;
    const compiler = await compilerFor(this.#library, pieces, ends);
    return new GrammarEngine(this.#library, compiler, this.#meter, this.#lastWords);
  }

  get isFull(): boolean {
    return this.#meter.grownBytes > memoryFullBytes;
  }

  /** Throws anything: what `explain` makes of it is for the client. */
  compile(source: GrammarSource): Promise<CompiledGrammar> {
    this.#lastWords.length = 0;
    return this.#compiler.compileGrammar(source.grammar);
  }

  /** What it has compiled goes on. */
  dispose(): void {
    this.#compiler.dispose();
  }

  match(grammar: CompiledGrammar): Promise<GrammarMatcher> {
    return this.#library.GrammarMatcher.createGrammarMatcher(grammar);
  }

  /** Why the engine has thrown, in its own words. */
  explain(thrown: unknown): string {
    if (this.#meter.hasRefused) return `it takes more than ${memoryLimitBytes / 2 ** 20} MiB of memory`;
    const words = this.#lastWords.map(withoutPlace).filter((line) => !line.startsWith("Aborted("));
    if (words.length > 0) return words.join("; ");
    return thrown instanceof Error ? thrown.message : "the grammar engine gives no reason";
  }
}

async function compilerFor(library: Library, pieces: readonly Uint8Array[], ends: readonly number[]) {
  // Typed as strings, which cannot hold every byte sequence; the binding takes bytes as they are.
  const vocabulary = pieces as unknown as string[];
  const info = await library.TokenizerInfo.createTokenizerInfo(vocabulary, "raw", false, pieces.length, [...ends]);
  // Not its own cache: it has no bound that we could see.
  const compiler = await library.GrammarCompiler.createGrammarCompiler(info, false);
  info.dispose();
  return compiler;
}

/** Drops where in its own source the engine says it. */
function withoutPlace(line: string): string {
  return line.replace(/^\[FATAL\] \S+:\d+: /, "").trim();
}

/**
 * The package is a script in a folder of modules: imported as a module it puts itself on the global object. It looks for
 * its own address in `location` until its WebAssembly has been set up.
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
 * Bounds the engine's memory, the only one that grows on its thread: it has no bound of its own below 2 GiB, and a
 * grammar whose text never ends fills any.
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

  /** From now on at most so much more. */
  limit(bytes: number): void {
    this.grownBytes = 0;
    this.#limitBytes = bytes;
  }

  /** The engine asks for more than it needs first, and for less when that is refused. */
  #count(bytes: number): void {
    this.hasRefused = this.grownBytes + bytes > this.#limitBytes;
    if (this.hasRefused) throw new RangeError("the grammar engine's memory is full");
    this.grownBytes += bytes;
  }
}
