// Shard names: models split over several files, `name-00001-of-00003.gguf`. Pure; for files of the hub and local ones.

const shardPattern = /-(\d{5})-of-(\d{5})\.gguf$/i;
/** A larger number is a mistake, or an attack on the code that lists the names. */
const maxShards = 1024;

/** The paths of all shards of the model that `path` is a shard of; only `path` if the model is one file. */
export function shardPaths(path: string): readonly string[] {
  const [suffix = "", , digits = ""] = shardPattern.exec(path) ?? [];
  const count = Number(digits);
  if (count < 1 || count > maxShards) return [path];
  const prefix = path.slice(0, -suffix.length);
  // The extension is taken from the name, which may be in capitals.
  const extension = suffix.slice(-".gguf".length);
  return Array.from({ length: count }, (_, index) => {
    return `${prefix}-${String(index + 1).padStart(5, "0")}-of-${digits}${extension}`;
  });
}

/** A path without `.gguf` and without its shard number. */
export function stemOf(path: string): string {
  return path.replace(shardPattern, "").replace(/\.gguf$/i, "");
}
