// Loader of the library @mlc-ai/web-xgrammar, for a grammar thread in a page.
import * as library from "@mlc-ai/web-xgrammar";

export type Library = typeof library;

export async function loadLibrary(): Promise<Library> {
  // The first call initialises the library's WebAssembly module.
  (await library.Grammar.builtinJSONGrammar()).dispose();
  return library;
}
