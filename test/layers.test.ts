// Owns the proof of the import law, read from the sources: which folder may import which, and which folder alone may import
// a foreign library. A rule is a function of one file; each is also shown a file that breaks it.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, posix, sep } from "node:path";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";

interface SourceFile {
  /** From the root, with "/". */
  readonly path: string;
  /** Without comments. */
  readonly code: string;
  /** What it imports: a path from the root, or the name of a package or of a module of node. */
  readonly imports: readonly string[];
}

/** What is wrong with a file; nothing where it keeps the rule. */
type Rule = (file: SourceFile) => readonly string[];

const root = join(dirname(fileURLToPath(import.meta.url)), "..", "..");
const layers = ["runtime", "engines", "actors", "http"];
const topFolders = [...layers, "cli", "test", "bench"];

/** Packages that one folder alone may import. */
const owners: Readonly<Record<string, string>> = {
  "uWebSockets.js": "http/uws",
  "uws-compat": "http/uws",
  "node-llama-cpp": "engines/llama",
  koffi: "engines/llama",
  comlink: "runtime",
  msgpackr: "runtime",
  lmdb: "runtime/store",
  "zod-openapi": "http/openapi",
  "swagger-ui-dist": "http/docs",
  "prom-client": "http/metrics",
  "@modelcontextprotocol/server": "http/mcp",
  "@opentelemetry/api": "http/tracing",
  "@opentelemetry/sdk-trace-base": "http/tracing",
  "@mlc-ai/web-xgrammar": "engines/grammar",
  ajv: "engines/grammar",
  "@huggingface/jinja": "engines/template",
};

/** Folders of http/ that are not wire protocols or resources, and may be imported by the others. */
const sharedHttpFolders = ["uws"];

const rules: Readonly<Record<string, Rule>> = {
  "imports point down: http, actors, engines, runtime; only test and bench reach up, and nothing imports cli": ({
    path,
    imports,
  }) => {
    const own = folderOf(path);
    if (own === "cli" || own === "test" || own === "bench") return [];
    const below = layers.slice(0, layers.indexOf(own) + 1);
    return imports.filter((name) => topFolders.includes(folderOf(name)) && !below.includes(folderOf(name)));
  },
  "a foreign library is imported by one folder": ({ path, imports }) => {
    if (path.startsWith("test/")) return [];
    return imports.filter((name) => {
      const owner = owners[packageOf(name)];
      return owner !== undefined && !path.startsWith(`${owner}/`);
    });
  },
  "engines do not know each other": ({ path, imports }) => {
    const other = path.startsWith("engines/llama/") ? "engines/wasm/" : "engines/llama/";
    const isEngine = path.startsWith("engines/llama/") || path.startsWith("engines/wasm/");
    return isEngine ? imports.filter((name) => name.startsWith(other)) : [];
  },
  "protocols do not know each other": ({ path, imports }) => {
    const own = httpFolderOf(path);
    if (own === null || sharedHttpFolders.includes(own)) return [];
    return imports.filter((name) => ![null, own, ...sharedHttpFolders].includes(httpFolderOf(name)));
  },
  "the scheduling policy neither waits nor looks at a clock nor does I/O": ({ path, code, imports }) => {
    if (!path.startsWith("engines/scheduler/")) return [];
    const words = code.match(/\b(?:await|async|Date|performance|process|console|setTimeout|setImmediate)\b/g) ?? [];
    return [...imports.filter((name) => name.startsWith("node:")), ...words];
  },
  "there are no default exports and no barrels": ({ path, code }) => {
    const exports = code.match(/\bexport\s+default\b|\bexport\s+(?:type\s+)?\*\s*(?:as\s+\w+\s*)?from\b/g) ?? [];
    return path.endsWith("/index.ts") ? [...exports, path] : exports;
  },
};

function folderOf(path: string): string {
  return path.includes("/") ? path.slice(0, path.indexOf("/")) : "";
}

/** `chat` of `http/chat/route.ts`; null outside http/ and for the files directly in it. */
function httpFolderOf(path: string): string | null {
  const [, folder = null] = /^http\/([^/]+)\//.exec(path) ?? [];
  return folder;
}

/** The package a specifier belongs to: `koffi/x` is koffi's, `@a/b/c` is @a/b's. */
function packageOf(name: string): string {
  return name
    .split("/")
    .slice(0, name.startsWith("@") ? 2 : 1)
    .join("/");
}

function readSource(path: string, text: string): SourceFile {
  // A "//" inside a string is preceded by a colon, as in an address.
  const code = text.replace(/\/\*[\s\S]*?\*\//g, "").replace(/(^|[^:"'`])\/\/.*$/gm, "$1");
  const specifiers = [
    ...code.matchAll(/\b(?:import|export)\b[^"'`;()]*?\bfrom\s*["']([^"']+)["']/g),
    ...code.matchAll(/\bimport\s*["']([^"']+)["']/g),
    ...code.matchAll(/\b(?:import|require|resolve)\s*\(\s*["'`]([^"'`]+)["'`]/g),
    // The module a worker or child process runs is imported too, if later.
    ...code.matchAll(/\bnew URL\(\s*["'`](\.[^"'`]+)["'`]\s*,\s*import\.meta\.url/g),
  ].map(([, specifier = ""]) => specifier);
  const imports = specifiers.map((name) => (name.startsWith(".") ? posix.join(posix.dirname(path), name) : name));
  return { path, code, imports };
}

function readSources(folder: string): SourceFile[] {
  return readdirSync(join(root, folder), { encoding: "utf8", recursive: true }).flatMap((name) => {
    const path = `${folder}/${name.split(sep).join("/")}`;
    // The kernels are AssemblyScript, another language with the same file ending; this file quotes violations.
    const isSource = path.endsWith(".ts") && !path.includes("/kernel/") && path !== "test/layers.test.ts";
    return isSource ? [readSource(path, readFileSync(join(root, path), "utf8"))] : [];
  });
}

/** A file that breaks each rule, and what is then complained of. */
const violations: Readonly<Record<string, readonly [path: string, text: string, complaint: string][]>> = {
  "imports point down: http, actors, engines, runtime; only test and bench reach up, and nothing imports cli": [
    ["engines/a.ts", 'import { b } from "../actors/b.ts";', "actors/b.ts"],
    ["runtime/a.ts", 'import type { B } from "../engines/b.ts";', "engines/b.ts"],
    ["actors/x/a.ts", 'const b = await import("../../http/b.ts");', "http/b.ts"],
    ["http/a.ts", 'export { b } from "../cli/b.ts";', "cli/b.ts"],
    ["http/a.ts", 'import "../test/b.ts";', "test/b.ts"],
    ["engines/a.ts", 'import {\n  b, // why\n  c,\n} from "../http/b.ts";', "http/b.ts"],
  ],
  "a foreign library is imported by one folder": [
    ["engines/wasm/a.ts", 'import koffi from "koffi";', "koffi"],
    ["http/chat/a.ts", 'const uws = require("uWebSockets.js");', "uWebSockets.js"],
    [
      "actors/a.ts",
      'import * as comlink from "comlink/dist/esm/node-adapter.mjs";',
      "comlink/dist/esm/node-adapter.mjs",
    ],
  ],
  "engines do not know each other": [
    ["engines/llama/a.ts", 'import { b } from "../wasm/b.ts";', "engines/wasm/b.ts"],
    ["engines/wasm/a.ts", 'import { b } from "../llama/b.ts";', "engines/llama/b.ts"],
  ],
  "protocols do not know each other": [
    ["http/completions/a.ts", 'import { b } from "../chat/b.ts";', "http/chat/b.ts"],
  ],
  "the scheduling policy neither waits nor looks at a clock nor does I/O": [
    ["engines/scheduler/a.ts", "await work();", "await"],
    ["engines/scheduler/a.ts", "const now = Date.now();", "Date"],
    ["engines/scheduler/a.ts", "performance.now();", "performance"],
    ["engines/scheduler/a.ts", 'import { readFile } from "node:fs";', "node:fs"],
  ],
  "there are no default exports and no barrels": [
    ["http/a.ts", "export default 1;", "export default"],
    ["http/chat/index.ts", "", "http/chat/index.ts"],
    ["http/a.ts", 'export * from "./b.ts";', "export * from"],
  ],
};

describe("the import law", () => {
  const sources = topFolders.flatMap(readSources);

  it("reads the sources of every layer", () => {
    for (const layer of layers)
      assert.ok(
        sources.some(({ path }) => folderOf(path) === layer),
        layer,
      );
  });

  for (const [name, rule] of Object.entries(rules)) {
    it(name, () => {
      const found = sources.flatMap((file) => rule(file).map((problem) => `${file.path}: ${problem}`));
      assert.deepEqual(found, []);
    });
    it(`would notice otherwise: ${name}`, () => {
      const examples = violations[name] ?? [];
      assert.notEqual(examples.length, 0);
      for (const [path, text, complaint] of examples) assert.deepEqual(rule(readSource(path, text)), [complaint]);
    });
  }

  it("does not mistake comments and texts for code", () => {
    const text =
      '// import { a } from "../http/a.ts";\n/* export default 1 */\nconst url = "http://host/x"; // await\n';
    const file = readSource("engines/scheduler/a.ts", text);
    assert.deepEqual(
      Object.values(rules).flatMap((rule) => rule(file)),
      [],
    );
    assert.match(file.code, /http:\/\/host\/x/);
  });
});
