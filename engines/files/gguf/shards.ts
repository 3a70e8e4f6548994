// Owns the names of models that are split over several files, `name-00001-of-00003.gguf`. Pure; used for files of the hub
// and for local ones.

const shardPattern = /-(\d{5})-of-(\d{5})\.gguf$/i;
/** More is no model but a mistake, or an attack on what lists the names. */
const maxShards = 1024;

/** The paths of all shards of the model that `path` is a shard of; `path` alone where the model is one file. */
export function shardPaths(path: string): readonly string[] {
  const [suffix = "", , digits = ""] = shardPattern.exec(path) ?? [];
  const count = Number(digits);
  if (count < 1 || count > maxShards) return [path];
  const prefix = path.slice(0, -suffix.length);
  // What follows the digits is taken from the name, which may be written in capitals.
  const extension = suffix.slice(-".gguf".length);
  return Array.from({ length: count }, (_, index) => {
    return `${prefix}-${String(index + 1).padStart(5, "0")}-of-${digits}${extension}`;
  });
}

/** A path without `.gguf` and without the part that numbers a shard. */
export function stemOf(path: string): string {
  return path.replace(shardPattern, "").replace(/\.gguf$/i, "");
}
