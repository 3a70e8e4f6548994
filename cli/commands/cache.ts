// `troupe cache list` and `troupe cache delete`: list the models in both caches (the hub's and this program's), and delete one
// of them.
import { createInterface } from "node:readline/promises";
import arg from "arg";
import { type CachedModel, deleteCachedModel, listCachedModels } from "../../engines/files/hub/cached-models.ts";
import { ServerError } from "../../runtime/errors.ts";
import { nearest, suggestion } from "../../runtime/nearest.ts";
import { modelCaches } from "./model-caches.ts";
import { sizeText, textTable } from "./table.ts";
import { cacheFlags } from "./tool-flags.ts";

const usage = "troupe cache list [--json], or troupe cache delete -m ID [-y]";

/** Runs the command; `args` are the words after `troupe cache`. Throws config_invalid for unknown arguments. */
export async function cacheCommand(args: readonly string[]): Promise<void> {
  const { action, flags } = parse(args);
  if (flags["--help"]) return void process.stdout.write(`${usage}\n`);
  const caches = modelCaches(process.env);
  const models = await listCachedModels(caches);
  if (action === "list") {
    const text = flags["--json"] ? JSON.stringify(models.map(toJson), null, 2) : table(models, Object.values(caches));
    process.stdout.write(`${text}\n`);
    return;
  }
  const model = findModel(flags["--model-id"], models);
  const what = `${model.id} (${sizeText(model.diskBytes)})`;
  if (!flags["--yes"] && !(await isConfirmed(what))) return void process.stdout.write("nothing deleted\n");
  await deleteCachedModel(model);
  process.stdout.write(`deleted ${what}\n`);
}

function parse(args: readonly string[]) {
  const [action, ...others] = args;
  if (action !== "list" && action !== "delete" && action !== "--help" && action !== "-h") {
    const near = action === undefined ? null : nearest(action, ["list", "delete"]);
    throw invalid(`cache expects ${usage}; got ${action ?? "none"}${near ? `; did you mean "${near}"?` : ""}`);
  }
  const isAsking = action !== "list" && action !== "delete";
  const spec: Partial<typeof cacheFlags.list & typeof cacheFlags.delete> = cacheFlags[isAsking ? "list" : action];
  try {
    const { _: words, ...flags } = arg(spec, { argv: isAsking ? [action] : others });
    if (words.length > 0) throw invalid(`unexpected "${words[0]}"; cache expects ${usage}`);
    return { action, flags };
  } catch (cause) {
    if (!(cause instanceof arg.ArgError)) throw cause;
    throw invalid(`${cause.message}; cache expects ${usage}`);
  }
}

function findModel(id: string | undefined, models: readonly CachedModel[]): CachedModel {
  if (id === undefined) throw invalid(`cache delete expects -m ID; got none: troupe cache list shows the ids`);
  // The version can be omitted if only one version is cached, which is true for most packages.
  const found = models.filter((model) => model.id === id || model.id.startsWith(`${id}==`));
  const [first, ...others] = found;
  if (first !== undefined && others.length === 0) return first;
  const ids = models.map((model) => model.id);
  if (first !== undefined)
    throw invalid(`"${id}" has several versions; name one: ${found.map((one) => one.id).join(", ")}`);
  throw invalid(`no model "${id}" in the caches${suggestion(id, ids)}; troupe cache list shows all`);
}

async function isConfirmed(what: string): Promise<boolean> {
  if (!process.stdin.isTTY) throw invalid(`deleting ${what} expects -y if standard input is no terminal; got none`);
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  try {
    return /^y(es)?$/i.test((await terminal.question(`delete ${what}? [y/N] `)).trim());
  } finally {
    terminal.close();
  }
}

function toJson({ id, revisions, files, diskBytes, lastUsedMs }: CachedModel): object {
  return {
    id,
    revisions,
    files: files.map(({ name, sizeBytes }) => ({ name, size_bytes: sizeBytes })),
    disk_bytes: diskBytes,
    last_used: lastUsedMs === 0 ? null : new Date(lastUsedMs).toISOString(),
  };
}

function table(models: readonly CachedModel[], places: readonly string[]): string {
  if (models.length === 0) return `no models in ${places.join(" or ")}`;
  const rows = models.flatMap((model) => {
    const [first = "-", ...others] = model.files.map(({ name, sizeBytes }) => `${name} (${sizeText(sizeBytes)})`);
    const used = model.lastUsedMs === 0 ? "-" : new Date(model.lastUsedMs).toISOString().slice(0, 10);
    const revisions = model.revisions.join(", ") || "-";
    return [
      [model.id, revisions, sizeText(model.diskBytes), used, first],
      ...others.map((file) => ["", "", "", "", file]),
    ];
  });
  return textTable([["MODEL", "REVISION", "SIZE", "LAST USED", "FILES"], ...rows]);
}

function invalid(message: string): ServerError {
  return new ServerError("config_invalid", message);
}
