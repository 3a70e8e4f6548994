// Import rules, checked on the source files: which folders a folder may import, which single folder may import a library, and
// that no imports are circular. A rule is a function that checks one file. Each rule is also tested on files that violate it.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, posix, relative, sep } from "node:path";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";

interface SourceFile {
  /** Path relative to the root of the repository, with "/" as separator. */
  readonly path: string;
  /** Source text without comments. */
  readonly code: string;
  /** Imported modules, including type imports: a path relative to the root, or the name of a package or of a Node module. */
  readonly imports: readonly string[];
  /** Imports that TypeScript resolves. Modules that only a worker or child process runs are not included. */
  readonly linked: readonly string[];
}

/** Rule: returns the violations in a file; empty if there are none. */
type Rule = (file: SourceFile) => readonly string[];

const root = join(dirname(fileURLToPath(import.meta.url)), "..", "..");
const layers = ["runtime", "engines", "actors", "http"];
const topFolders = [...layers, "cli", "browser", "ui", "test", "bench"];
/** Maximum number of files in a folder, unless ARCHITECTURE.md explains why the folder has more. */
const mostFiles = 12;
/** Files that the rules skip: this file, because it quotes violations, and files that must have a default export. */
const notSources = ["test/layers.test.ts", "ui/vite.config.ts", "browser/vite.config.ts", "browser/node/assert.ts"];

/** The only folder that may import a package, by package name. */
const owners: Readonly<Record<string, string>> = {
  "uWebSockets.js": "http/server/uws",
  "uws-compat": "http/server/uws",
  "node-llama-cpp": "engines/llama",
  koffi: "engines/llama",
  comlink: "runtime",
  msgpackr: "runtime",
  lmdb: "runtime/store",
  redis: "runtime/store/redis",
  s3mini: "runtime/store/bucket",
  sharp: "engines/image-input",
  "zod-openapi": "http/openapi",
  "swagger-ui-dist": "http/docs",
  "prom-client": "http/observe/metrics",
  "@modelcontextprotocol/client": "actors/mcp-client",
  "@modelcontextprotocol/server": "http/mcp",
  "@opentelemetry/api": "http/observe/tracing",
  "@opentelemetry/sdk-trace-base": "http/observe/tracing",
  "@mlc-ai/web-xgrammar": "engines/decoding/grammar",
  ajv: "engines/text/constraints",
  linkedom: "actors/web/extract",
  "@mozilla/readability": "actors/web/extract",
  turndown: "actors/web/extract",
  "html-encoding-sniffer": "actors/web/extract",
  "robots-parser": "actors/web/extract",
  minisearch: "actors/web/ranking",
  undici: "runtime/web",
  diff: "cli/agent",
  "@huggingface/jinja": "engines/text/template",
  "onnxruntime-node": "engines/onnx",
  "fast-png": "engines/diffusion",
  mediabunny: "engines/speech/audio",
  "audio-decode": "engines/speech/audio",
  "@evan/opus": "engines/speech/audio",
};

/** Folders of http/ that are not wire protocols or resources. Protocols may import them. */
const sharedHttpFolders = ["server", "shared", "observe"];

/** The only files of shared folders that may import all protocols: the table of body translators, by protocol. */
const protocolTables = ["http/shared/body-translators.ts"];

const rules: Readonly<Record<string, Rule>> = {
  "imports point down: http, actors, engines, runtime; only test and bench import cli, and nothing imports them": ({
    path,
    imports,
  }) => {
    const own = folderOf(path);
    if (own === "test" || own === "bench") return [];
    const others = imports.filter((name) => topFolders.includes(folderOf(name)) && folderOf(name) !== own);
    // The UI may import one file of browser/: the types of the messages to the worker that runs the engine.
    if (own === "ui") return others.filter((name) => name !== "browser/messages.ts");
    if (own === "browser")
      return others.filter((name) => !layers.includes(folderOf(name)) && name !== "ui/compressed.ts");
    if (own === "cli") return imports.filter((name) => ["test", "bench"].includes(folderOf(name)));
    const below = layers.slice(0, layers.indexOf(own) + 1);
    return imports.filter((name) => topFolders.includes(folderOf(name)) && !below.includes(folderOf(name)));
  },
  "a foreign library is imported by one folder": ({ path, imports }) => {
    // Node code loads some libraries at run time by name. In a web page, files of browser/ import these libraries instead.
    if (path.startsWith("test/") || folderOf(path) === "browser") return [];
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
  "engines/ is divided: text imports no decoding and no engine, decoding no engine, quantization only files, files none":
    ({ path, imports }) => {
      const room = engineRoomOf(path);
      const forbidden = room === null ? [] : (forbiddenRooms[room] ?? []);
      return imports.filter((name) => {
        const other = engineRoomOf(name);
        // Grammar threads use the tokenizer, because a token mask is computed from the texts of the tokens.
        if (room === "decoding" && other === "text") return !path.startsWith("engines/decoding/grammar/");
        // The kernels of both folders read the same formats, so they share sources. They are compiled into separate modules.
        if (path.startsWith("engines/quantization/codec/kernels/") && name.startsWith("engines/wasm/kernels/"))
          return false;
        return other !== null && forbidden.includes(other);
      });
    },
  "only cli imports the model hub": ({ path, imports }) => {
    if (["cli", "test", "bench"].includes(folderOf(path)) || path.startsWith("engines/files/hub/")) return [];
    return imports.filter((name) => name.startsWith("engines/files/hub/"));
  },
  "protocols do not know each other": ({ path, imports }) => {
    const own = httpFolderOf(path);
    if (own === null || protocolTables.includes(path)) return [];
    return imports.filter((name) => ![null, own, ...sharedHttpFolders].includes(httpFolderOf(name)));
  },
  "the scheduling policy neither waits nor looks at a clock nor does I/O": ({ path, code, imports }) => {
    if (!path.startsWith("engines/decoding/scheduler/")) return [];
    const words = code.match(/\b(?:await|async|Date|performance|process|console|setTimeout|setImmediate)\b/g) ?? [];
    return [...imports.filter((name) => name.startsWith("node:")), ...words];
  },
  "there are no default exports and no barrels": ({ path, code }) => {
    const exports = code.match(/\bexport\s+default\b|\bexport\s+(?:type\s+)?\*\s*(?:as\s+\w+\s*)?from\b/g) ?? [];
    return path.endsWith("/index.ts") ? [...exports, path] : exports;
  },
};

/** Other folders of engines/ that a folder of engines/ must not import. The interfaces between them are files directly in engines/. */
const forbiddenRooms: Readonly<Record<string, readonly string[]>> = {
  text: ["decoding", "llama", "wasm", "trial", "quantization"],
  decoding: ["llama", "wasm", "trial", "quantization"],
  files: ["text", "decoding", "llama", "wasm", "trial", "quantization"],
  quantization: ["text", "decoding", "llama", "wasm", "trial"],
};

/** Returns the folder below engines/, such as `text` for engines/text/tokenizer/x.ts; null for files directly in or outside engines/. */
function engineRoomOf(path: string): string | null {
  const [, room = null] = /^engines\/([^/]+)\//.exec(path) ?? [];
  return room;
}

function folderOf(path: string): string {
  return path.includes("/") ? path.slice(0, path.indexOf("/")) : "";
}

/** Returns the folder below http/, such as `chat` for http/chat/route.ts; null for files directly in or outside http/. */
function httpFolderOf(path: string): string | null {
  const [, folder = null] = /^http\/([^/]+)\//.exec(path) ?? [];
  return folder;
}

/** Returns the package of an imported module: `koffi` for `koffi/x`, `@a/b` for `@a/b/c`. */
function packageOf(name: string): string {
  return name
    .split("/")
    .slice(0, name.startsWith("@") ? 2 : 1)
    .join("/");
}

function readSource(path: string, text: string): SourceFile {
  // A `//` after a colon is part of a URL in a string, so it begins no comment.
  const code = text.replace(/\/\*[\s\S]*?\*\//g, "").replace(/(^|[^:"'`])\/\/.*$/gm, "$1");
  const linked = [
    ...code.matchAll(/\b(?:import|export)\b[^"'`;()]*?\bfrom\s*["']([^"']+)["']/g),
    ...code.matchAll(/\bimport\s*["']([^"']+)["']/g),
    ...code.matchAll(/\b(?:import|require|resolve)\s*\(\s*["'`]([^"'`]+)["'`]/g),
  ].map(([, specifier = ""]) => specifier);
  const started = [
    // Modules that worker threads and child processes run.
    ...code.matchAll(/\bnew URL\(\s*["'`](\.[^"'`]+)["'`]\s*,\s*import\.meta\.url/g),
  ].map(([, specifier = ""]) => specifier);
  const resolve = (name: string) => (name.startsWith(".") ? posix.join(posix.dirname(path), name) : name);
  return { path, code, imports: [...linked, ...started].map(resolve), linked: linked.map(resolve) };
}

/** Returns the paths of the first circular import; empty if there is none. */
function findCircle(sources: readonly SourceFile[]): string[] {
  const linkedOf = new Map(sources.map(({ path, linked }) => [path, linked]));
  const done = new Set<string>();
  const trail: string[] = [];
  const visit = (path: string): string[] => {
    if (trail.includes(path)) return [...trail.slice(trail.indexOf(path)), path];
    if (done.has(path)) return [];
    trail.push(path);
    for (const next of linkedOf.get(path) ?? []) {
      const circle = visit(next);
      if (circle.length > 0) return circle;
    }
    trail.pop();
    done.add(path);
    return [];
  };
  for (const { path } of sources) {
    const circle = visit(path);
    if (circle.length > 0) return circle;
  }
  return [];
}

/** Returns the folders with more than `mostFiles` files that ARCHITECTURE.md does not name. */
function crowdedFolders(): string[] {
  const architecture = readFileSync(join(root, "ARCHITECTURE.md"), "utf8");
  const folders = topFolders.flatMap((folder) => [
    folder,
    ...readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map((entry) => `${relative(root, entry.parentPath)}/${entry.name}`.split(sep).join("/")),
  ]);
  return folders.filter((folder) => {
    const files = readdirSync(join(root, folder), { withFileTypes: true }).filter((entry) => entry.isFile());
    return files.length > mostFiles && !architecture.includes(`\`${folder}/\``);
  });
}

function readSources(folder: string): SourceFile[] {
  return readdirSync(join(root, folder), { encoding: "utf8", recursive: true }).flatMap((name) => {
    const path = `${folder}/${name.split(sep).join("/")}`;
    // Excludes the kernels, because they are AssemblyScript files with the extension .ts.
    const isSource = /\.tsx?$/.test(path) && !path.includes("/kernel/") && !notSources.includes(path);
    return isSource ? [readSource(path, readFileSync(join(root, path), "utf8"))] : [];
  });
}

/** For each rule, files that violate it and the expected messages. */
const violations: Readonly<Record<string, readonly [path: string, text: string, complaint: string][]>> = {
  "imports point down: http, actors, engines, runtime; only test and bench import cli, and nothing imports them": [
    ["cli/a.ts", 'import { b } from "../bench/b.ts";', "bench/b.ts"],
    ["engines/a.ts", 'import { b } from "../actors/b.ts";', "actors/b.ts"],
    ["runtime/a.ts", 'import type { B } from "../engines/b.ts";', "engines/b.ts"],
    ["actors/x/a.ts", 'const b = await import("../../http/b.ts");', "http/b.ts"],
    ["http/a.ts", 'export { b } from "../cli/b.ts";', "cli/b.ts"],
    ["http/a.ts", 'import "../test/b.ts";', "test/b.ts"],
    ["ui/chat/a.tsx", 'import { b } from "../../http/b.ts";', "http/b.ts"],
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
  "engines/ is divided: text imports no decoding and no engine, decoding no engine, quantization only files, files none":
    [
      ["engines/text/a.ts", 'import { b } from "../decoding/b.ts";', "engines/decoding/b.ts"],
      ["engines/text/a.ts", 'import { b } from "../wasm/b.ts";', "engines/wasm/b.ts"],
      ["engines/decoding/kv/a.ts", 'import { b } from "../../llama/b.ts";', "engines/llama/b.ts"],
      ["engines/decoding/sampler/a.ts", 'import { b } from "../../text/b.ts";', "engines/text/b.ts"],
      ["engines/files/gguf/a.ts", 'import { b } from "../../text/b.ts";', "engines/text/b.ts"],
      ["engines/files/gguf/a.ts", 'import { b } from "../../quantization/b.ts";', "engines/quantization/b.ts"],
      ["engines/quantization/a.ts", 'import { b } from "../wasm/kernels/b.ts";', "engines/wasm/kernels/b.ts"],
      [
        "engines/quantization/codec/kernels/a.ts",
        'import { b } from "../../../wasm/plan/b.ts";',
        "engines/wasm/plan/b.ts",
      ],
    ],
  "only cli imports the model hub": [
    ["actors/a.ts", 'import { b } from "../engines/files/hub/b.ts";', "engines/files/hub/b.ts"],
  ],
  "protocols do not know each other": [
    ["http/completions/a.ts", 'import { b } from "../chat/b.ts";', "http/chat/b.ts"],
  ],
  "the scheduling policy neither waits nor looks at a clock nor does I/O": [
    ["engines/decoding/scheduler/a.ts", "await work();", "await"],
    ["engines/decoding/scheduler/a.ts", "const now = Date.now();", "Date"],
    ["engines/decoding/scheduler/a.ts", "performance.now();", "performance"],
    ["engines/decoding/scheduler/a.ts", 'import { readFile } from "node:fs";', "node:fs"],
  ],
  "there are no default exports and no barrels": [
    ["http/a.ts", "export default 1;", "export default"],
    ["http/chat/index.ts", "", "http/chat/index.ts"],
    ["http/a.ts", 'export * from "./b.ts";', "export * from"],
  ],
};

describe("the import rules", () => {
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
    it(`finds violations: ${name}`, () => {
      const examples = violations[name] ?? [];
      assert.notEqual(examples.length, 0);
      for (const [path, text, complaint] of examples) assert.deepEqual(rule(readSource(path, text)), [complaint]);
    });
  }

  it("finds no circular imports, type imports included", () => {
    assert.deepEqual(findCircle(sources), []);
  });

  it("finds a circular import", () => {
    const circle = [
      readSource("http/a.ts", 'import type { B } from "./b.ts";'),
      readSource("http/b.ts", 'import { c } from "./c.ts";'),
      readSource("http/c.ts", 'export { a } from "./a.ts";'),
    ];
    assert.deepEqual(findCircle(circle), ["http/a.ts", "http/b.ts", "http/c.ts", "http/a.ts"]);
  });

  it(`finds no folder with more than ${mostFiles} files that ARCHITECTURE.md does not name`, () => {
    assert.deepEqual(crowdedFolders(), []);
  });

  it("do not mistake comments and strings for code", () => {
    const text =
      '// import { a } from "../http/a.ts";\n/* export default 1 */\nconst url = "http://host/x"; // await\n';
    const file = readSource("engines/decoding/scheduler/a.ts", text);
    assert.deepEqual(
      Object.values(rules).flatMap((rule) => rule(file)),
      [],
    );
    assert.match(file.code, /http:\/\/host\/x/);
  });
});
