// npm package as a user gets it: packed, installed in an empty folder, started with npx, and sent one request.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { publint } from "publint";
import { realModel } from "../../fixtures/models/models.ts";

const root = fileURLToPath(new URL("../../../../", import.meta.url));
const types = join(root, "node_modules", "@types");
const tsc = join(root, "node_modules", "typescript", "bin", "tsc");
const maxDownloadBytes = 120e6;
const limitMs = 400_000;

const program = `import { createTroupe, type Router, type TroupeSettings, tool } from "troupe";
import { z } from "zod";
const settings: TroupeSettings = { models: [{ modelId: "x.gguf", device: { cpu: true } }], troupe: { engine: "wasm" } };
const troupe = await createTroupe(settings);
export const router: Router = troupe.router({ basePath: "/ai" });
export const GET = (request: Request): Promise<Response> => router.fetch(request);
const schema = z.object({ city: z.string() });
await createTroupe({ tools: [tool({ name: "a", description: "b", schema, run: ({ city }) => city.toUpperCase() })] });
// @ts-expect-error city is a string
tool({ name: "a", description: "b", schema, run: ({ city }) => city * 2 });
// @ts-expect-error the setting is called maxSeqs
await createTroupe({ maxSeq: 4 });
// @ts-expect-error an embedded troupe has no port
await createTroupe({ server: { port: 4 } });
`;

const compilerOptions = {
  module: "nodenext",
  target: "es2023",
  strict: true,
  noEmit: true,
  typeRoots: [types],
  types: ["node"],
};

describe("the package in an empty folder", () => {
  let folder = "";
  let packed: { readonly files: readonly { readonly path: string }[] };
  const inFolder = (command: string, ...argv: readonly string[]) =>
    promisify(execFile)(command, argv, { cwd: folder, timeout: limitMs });

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "troupe-package-"));
    await writeFile(join(folder, "package.json"), JSON.stringify({ type: "module" }));
    // The build script is skipped, because it empties dist/, from which the tests run.
    const pack = ["pack", "--ignore-scripts", "--json", "--pack-destination", folder];
    const { stdout } = await promisify(execFile)("npm", pack, { cwd: root });
    const [found] = Object.values(JSON.parse(stdout) as Record<string, typeof packed & { filename: string }>);
    assert.ok(found !== undefined);
    packed = found;
    await inFolder(
      "npm",
      "install",
      "--prefer-offline",
      "--no-progress",
      "--ignore-scripts",
      join(folder, found.filename),
    );
  });
  after(() => rm(folder, { recursive: true }));

  it("contains the program and its documents, and neither tests nor sources", () => {
    const paths = packed.files.map(({ path }) => path);
    for (const needed of [
      "LICENSE",
      "README.md",
      "CHANGELOG.md",
      "cli/troupe.mjs",
      "dist/cli/main.js",
      "dist/engines/wasm/kernels/kernels-relaxed.wasm",
      "dist/engines/wasm/kernels/kernels-plain.wasm",
      "dist/engines/decoding/sampler/sampler.wasm",
      "dist/engines/quantization/codec/block-codec.wasm",
    ]) {
      assert.ok(paths.includes(needed), `${needed} is missing`);
    }
    const unwanted = paths.filter((path) => /(^|\/)(test|tests)\/|^dist\/bench|\.map$|(?<!\.d)\.ts$/.test(path));
    assert.deepEqual(unwanted, []);
  });

  it("passes publint", async () => {
    const { messages } = await publint({ pkgDir: join(folder, "node_modules", "troupe"), pack: false, strict: true });
    assert.deepEqual(messages, []);
  });

  it("downloads at most 120 MB, without libraries for GPUs", async () => {
    const lock = JSON.parse(await readFile(join(folder, "node_modules", ".package-lock.json"), "utf8")) as {
      packages: Record<string, { integrity?: string }>;
    };
    const names = Object.keys(lock.packages).map((path) => path.replace(/^.*node_modules\//, ""));
    assert.deepEqual(
      names.filter((name) => /cuda|vulkan|^node-llama-cpp$|^@opentelemetry\/(?!api$)/.test(name)),
      [],
    );
    const { stdout: cache } = await inFolder("npm", "config", "get", "cache");
    const sizes = Object.values(lock.packages).map(({ integrity = "" }) => cachedBytes(cache.trim(), integrity));
    const bytes = (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0);
    // The HTTP front end (uWebSockets.js) alone takes 40 MB. A smaller sum means that the cache was not found.
    assert.ok(bytes > 40e6 && bytes < maxDownloadBytes, `${bytes} bytes`);
  });

  it("serves with one command, and answers", { timeout: limitMs }, async () => {
    const { path } = await realModel();
    const flags = [
      "-m",
      path,
      "--port",
      "0",
      "--host",
      "127.0.0.1",
      "--cpu",
      "--engine",
      "wasm",
      "--max-model-len",
      "512",
    ];
    const argv = ["--no-install", "troupe", ...flags];
    const environment = { ...process.env, XDG_STATE_HOME: folder };
    const server = spawn("npx", argv, {
      cwd: folder,
      env: environment,
      detached: true,
      stdio: ["ignore", "pipe", "inherit"],
    });
    try {
      const chat = await addressIn(server.stdout);
      const answer = await fetch(chat, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ messages: [{ role: "user", content: "Say hello." }], max_tokens: 4 }),
      });
      assert.equal(answer.status, 200);
      const { choices } = (await answer.json()) as { choices: { message: { content: string } }[] };
      assert.ok((choices[0]?.message.content ?? "").length > 0);
    } finally {
      // npx starts the program in a child process, so the signal goes to the process group.
      process.kill(-(server.pid ?? 0), "SIGTERM");
      await once(server, "exit");
    }
  });

  it("names the command that installs what tracing needs", async () => {
    const asked = inFolder(
      "npx",
      "--no-install",
      "troupe",
      "serve",
      "-m",
      "x.gguf",
      "--otlp-endpoint",
      "http://127.0.0.1:4318",
    );
    await assert.rejects(asked, ({ code, stderr }: { code: number; stderr: string }) => {
      assert.equal(code, 2);
      assert.match(
        stderr,
        /^troupe: otlp_endpoint expects the OpenTelemetry packages: npm install @opentelemetry\/api@\d/m,
      );
      return true;
    });
  });

  it("has types, and exports nothing but the embedding API", async () => {
    await writeFile(join(folder, "program.ts"), program);
    await writeFile(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions, files: ["program.ts"] }));
    await inFolder(process.execPath, tsc, "-p", folder);
    const exported = `console.log(Object.keys(await import("troupe")).join())`;
    const { stdout } = await inFolder(process.execPath, "--input-type=module", "--eval", exported);
    assert.equal(stdout, "createTroupe,tool\n");
    const deep = `await import("troupe/dist/cli/serve.js")`;
    await assert.rejects(
      inFolder(process.execPath, "--input-type=module", "--eval", deep),
      /ERR_PACKAGE_PATH_NOT_EXPORTED/,
    );
  });
});

/** Returns the size of a downloaded package in npm's cache; 0 if it is not there. */
async function cachedBytes(cache: string, integrity: string): Promise<number> {
  const [algorithm = "", digest = ""] = integrity.split("-");
  const hex = Buffer.from(digest, "base64").toString("hex");
  const path = join(cache, "_cacache", "content-v2", algorithm, hex.slice(0, 2), hex.slice(2, 4), hex.slice(4));
  const found = await stat(path).catch(() => null);
  return found?.size ?? 0;
}

/** Returns the URL of the chat route that the server prints when it is ready. */
async function addressIn(output: AsyncIterable<Buffer>): Promise<string> {
  let text = "";
  for await (const chunk of output) {
    text += chunk;
    const found = /chat\s+(http:\/\/\S+)/.exec(text)?.[1];
    if (found !== undefined) return found;
  }
  throw new Error(`it ended without serving: ${text}`);
}
