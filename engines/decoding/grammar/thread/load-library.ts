// Loading of the library @mlc-ai/web-xgrammar on a grammar thread.

export type Library = typeof import("@mlc-ai/web-xgrammar");

/**
 * Loads the library. The package is a script in a folder of ES modules. When it is imported as a module, it writes its
 * exports to the global object. Until its WebAssembly is set up, it needs its own URL in the global `location`.
 */
export async function loadLibrary(): Promise<Library> {
  const name = "@mlc-ai/web-xgrammar";
  const global = globalThis as { location?: { readonly href: string } | undefined; xgrammar?: Library };
  global.location = { href: import.meta.resolve(name) };
  await import(name);
  const library = global.xgrammar as Library;
  (await library.Grammar.builtinJSONGrammar()).dispose();
  global.location = undefined;
  return library;
}
