import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { text } from "node:stream/consumers";
import { after, beforeEach, describe, it, type TestContext } from "node:test";
import { cacheCommand } from "../../../../cli/commands/cache.ts";
import { loginCommand } from "../../../../cli/commands/login.ts";
import { modelsCommand } from "../../../../cli/commands/models.ts";
import { modelBytes, repo, useHub } from "./hub-rig.ts";

const rig = await useHub();
const { hub } = rig;
const base = dirname(rig.cache);
const tokenFile = join(base, "token");
const original = { ...process.env };
const packageFolder = join(base, "troupe", "models", "pypi", "llm-tiny");

/** Runs a command. Returns what it wrote to stdout and stderr. */
async function outputOf(context: TestContext, run: () => Promise<void>): Promise<{ out: string; err: string }> {
  const printed = { out: "", err: "" };
  const capture = (stream: NodeJS.WriteStream, name: keyof typeof printed) => {
    const write = stream.write.bind(stream);
    // The test runner writes its own reports to stdout as bytes, so bytes are passed through.
    return context.mock.method(stream, "write", (chunk: string | Uint8Array) => {
      if (typeof chunk !== "string") return write(chunk);
      printed[name] += chunk;
      return true;
    });
  };
  const captures = [capture(process.stdout, "out"), capture(process.stderr, "err")];
  try {
    await run();
  } finally {
    for (const captured of captures) captured.mock.restore();
  }
  return printed;
}
const refused = (message: RegExp) => ({ name: "ServerError", code: "config_invalid", message });

beforeEach(() => {
  for (const name of ["HF_HUB_CACHE", "HF_TOKEN", "HF_HUB_TOKEN", "HF_TOKEN_PATH"]) delete process.env[name];
  Object.assign(process.env, rig.environment);
  rmSync(packageFolder, { recursive: true, force: true });
});
after(() => {
  for (const name of Object.keys(rig.environment)) delete process.env[name];
  Object.assign(process.env, original);
});

describe("troupe cache", () => {
  async function fill(): Promise<void> {
    rig.put({ "tiny-Q8_0.gguf": modelBytes() });
    await rig.resolve();
    for (const version of ["1.0", "2.0"]) {
      mkdirSync(join(packageFolder, version), { recursive: true });
      writeFileSync(join(packageFolder, version, "m.gguf"), "GGUF");
    }
  }

  it("lists and deletes converted models and the rest of interrupted conversions", async (context) => {
    const folder = join(base, "troupe", "models", "converted");
    mkdirSync(folder, { recursive: true });
    for (const name of ["a.gguf", "b.gguf.0a1b.partial", "b.gguf.0a1b.partial.json"])
      writeFileSync(join(folder, name), "GGUF");
    const { out } = await outputOf(context, () => cacheCommand(["list", "--json"]));
    const listed = JSON.parse(out).map(({ id }: { id: string }) => id);
    assert.deepEqual(
      listed.filter((id: string) => id.startsWith(folder)),
      [join(folder, "a.gguf"), join(folder, "b.gguf.0a1b.partial")],
    );
    await outputOf(context, () => cacheCommand(["delete", "-m", join(folder, "b.gguf.0a1b.partial"), "-y"]));
    assert.deepEqual(readdirSync(folder), ["a.gguf"]);
    rmSync(folder, { recursive: true });
  });

  it("lists what both caches hold", async (context) => {
    await fill();
    const { out } = await outputOf(context, () => cacheCommand(["list"]));
    const [head, ...rows] = out.trimEnd().split("\n");
    assert.match(head ?? "", /^MODEL +REVISION +SIZE +LAST USED +FILES$/);
    assert.match(rows[0] ?? "", /^acme\/tiny-GGUF +main +4\.5 kB +\d{4}-\d\d-\d\d +tiny-Q8_0\.gguf \(4\.5 kB\)$/);
    assert.match(rows[1] ?? "", /^pypi:llm-tiny==1\.0 +1\.0 /);
    assert.equal(rows.length, 3);
    const json = await outputOf(context, () => cacheCommand(["list", "--json"]));
    const [first] = JSON.parse(json.out);
    assert.deepEqual(first.files, [{ name: "tiny-Q8_0.gguf", size_bytes: 4500 }]);
    assert.ok(Date.parse(first.last_used) > 0);
  });

  it("lists the weights of checkpoints and of models in UQFF", async (context) => {
    const shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    const others = ["config.json", "model.safetensors.index.json", "tokenizer.json", "2_Dense/model.safetensors"];
    rig.put(Object.fromEntries([...shards, ...others].map((name) => [name, Buffer.from(name)])));
    await rig.resolve(repo);
    const uqff = ["q4k-0.uqff", "residual.safetensors", "config.json"];
    rig.put(Object.fromEntries(uqff.map((name) => [name, Buffer.from(name)])), "acme/uqff");
    await rig.resolve("acme/uqff");
    const { out } = await outputOf(context, () => cacheCommand(["list", "--json"]));
    const listed = JSON.parse(out).map(({ files }: { files: readonly { name: string }[] }) => files);
    assert.deepEqual(
      listed.map((files: readonly { name: string }[]) => files.map(({ name }) => name).sort()),
      [shards, ["q4k-0.uqff"]],
    );
    const models = await outputOf(context, () => modelsCommand(["--json"]));
    const sources = JSON.parse(models.out).local.map(({ source }: { source: string }) => source);
    assert.ok(
      [repo, "acme/uqff"].every((source) => sources.includes(source)),
      sources.join(),
    );
  });

  it("says of cached models that cannot be served why, and shows no command for them", async (context) => {
    const put = async (id: string, files: Readonly<Record<string, string>>) => {
      rig.put(Object.fromEntries(Object.entries(files).map(([name, content]) => [name, Buffer.from(content)])), id);
      await rig.resolve(id);
    };
    const config = (name: string) => JSON.stringify({ architectures: [name] });
    await put("acme/good", { "config.json": config("Qwen3ForCausalLM"), "model.safetensors": "weights" });
    await put("acme/tower", { "config.json": config("CLIPModel"), "model.safetensors": "weights" });
    const folder = join(rig.cache, "models--acme--adapter", "snapshots", "c".repeat(40));
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, "adapter_model.safetensors"), "weights");
    const { out } = await outputOf(context, () => modelsCommand([]));
    assert.match(out, /^acme\/good +0\.\d kB +troupe serve -m acme\/good$/m);
    assert.match(out, /^acme\/tower .* not served: the architecture "CLIPModel" cannot be loaded from safetensors$/m);
    assert.match(out, /^acme\/adapter .* not served: a LoRA adapter: give it to --lora$/m);
    const json = await outputOf(context, () => modelsCommand(["--json"]));
    const refusals = JSON.parse(json.out).local.map(({ refusal }: { refusal: string | null }) => refusal === null);
    assert.deepEqual(refusals, [false, true, false]);
  });

  it("reports where it searched when there is nothing", async (context) => {
    const { out } = await outputOf(context, () => cacheCommand(["list"]));
    assert.equal(out, `no models in ${rig.cache} or ${join(base, "troupe")}\n`);
  });

  it("deletes a model and nothing else, whatever links lead out of it", async (context) => {
    await fill();
    const outside = join(base, "outside");
    mkdirSync(outside, { recursive: true });
    writeFileSync(join(outside, "precious"), "");
    const folder = join(rig.cache, `models--${repo.replace("/", "--")}`);
    symlinkSync(outside, join(folder, "blobs", "way-out"));
    const { out } = await outputOf(context, () => cacheCommand(["delete", "-m", repo, "-y"]));
    assert.match(out, /^deleted acme\/tiny-GGUF \(4\.5 kB\)\n$/);
    assert.deepEqual([existsSync(folder), existsSync(join(outside, "precious"))], [false, true]);
    await outputOf(context, () => cacheCommand(["delete", "-m", "pypi:llm-tiny==1.0", "--yes"]));
    assert.ok(existsSync(join(packageFolder, "2.0", "m.gguf")));
    await outputOf(context, () => cacheCommand(["delete", "-m", "pypi:llm-tiny", "-y"]));
    assert.ok(!existsSync(packageFolder));
  });

  it("deletes nothing without an unambiguous name and a confirmation", async () => {
    await fill();
    const wrong: [string[], RegExp][] = [
      [
        ["delete", "-m", "acme/tiny-GUF", "-y"],
        /^no model "acme\/tiny-GUF" in the caches; did you mean "acme\/tiny-GGUF"\?/,
      ],
      [
        ["delete", "-m", "pypi:llm-tiny", "-y"],
        /has several versions; name one: pypi:llm-tiny==1\.0, pypi:llm-tiny==2\.0$/,
      ],
      [["delete", "-m", "..", "-y"], /^no model "\.\."/],
      [["delete", "-y"], /expects -m ID/],
      [["delete", "-m"], /cache expects troupe cache list/],
      [["delet"], /did you mean "delete"\?/],
      [["list", "-y"], /cache expects troupe cache list/],
      [["list", "all"], /^unexpected "all"/],
      [[], /got none$/],
    ];
    if (!process.stdin.isTTY)
      wrong.push([["delete", "-m", repo], /expects -y if standard input is no terminal; got none$/]);
    for (const [args, message] of wrong) await assert.rejects(cacheCommand(args), refused(message), args.join(" "));
    assert.equal(rig.blobs().length, 1);
  });
});

describe("troupe login", () => {
  it("stores a token that the hub knows, readable only by its owner", async (context) => {
    hub.accounts.set("me", "hf_good");
    const { out } = await outputOf(context, () => loginCommand(["--token", "hf_good"]));
    assert.equal(out, `logged in as me; the token is stored in ${tokenFile}\n`);
    assert.deepEqual([readFileSync(tokenFile, "utf8"), statSync(tokenFile).mode & 0o777], ["hf_good", 0o600]);
    rig.put({ "tiny-Q8_0.gguf": modelBytes() });
    await rig.assertFetched(modelBytes());
  });

  it("refuses a token that the hub does not know, and does not show it", async () => {
    hub.accounts.set("me", "hf_good");
    await assert.rejects(loginCommand(["--token", "hf_bad"]), (error: Error) => {
      assert.match(error.message, /^the hub http.* refuses this token; create one at /);
      return !error.message.includes("hf_bad");
    });
    assert.ok(!existsSync(tokenFile));
  });

  it("stores a token unchecked, with a warning, if the hub cannot be reached", async (context) => {
    hub.fault = () => ({ status: 503 });
    const { out, err } = await outputOf(context, () => loginCommand(["--token", "hf_x"]));
    assert.equal(out, `the token is stored in ${tokenFile}\n`);
    assert.match(err, /^warning: the token is stored without a check: the hub .* answered 503/);
  });

  it("warns when a variable overrides the stored token", async (context) => {
    process.env.HF_TOKEN = "hf_other";
    hub.accounts.set("me", "hf_good");
    const { err } = await outputOf(context, () => loginCommand(["--token", "hf_good"]));
    assert.equal(err, "note: HF_TOKEN is set and overrides the stored token\n");
  });

  it("reads a piped token, and rejects an invalid one without showing it", async () => {
    hub.accounts.set("me", "hf_good");
    const address = JSON.stringify(new URL("../../../../cli/commands/login.js", import.meta.url).href);
    const child = spawn(process.execPath, [
      "--input-type=module",
      "-e",
      `await (await import(${address})).loginCommand([])`,
    ]);
    child.stdin.end("hf_good\n");
    assert.match(await text(child.stdout), /^logged in as me;/);
    for (const [args, message] of [
      [["--token", " "], /^the token is empty or not set/],
      [["hf_good"], /^unexpected words; login expects/],
      [["--tokn", "hf_good"], /^login expects/],
    ] as const) {
      await assert.rejects(
        loginCommand(args),
        (error: Error) => message.test(error.message) && !/hf_/.test(error.message),
      );
    }
  });
});
