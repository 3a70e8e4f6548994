// Loading of the library @mlc-ai/web-xgrammar on a grammar thread in a page.
import * as library from "@mlc-ai/web-xgrammar";

export type Library = typeof library;

export async function loadLibrary(): Promise<Library> {
  // The first call sets up the WebAssembly of the library.
  (await library.Grammar.builtinJSONGrammar()).dispose();
  return library;
}
