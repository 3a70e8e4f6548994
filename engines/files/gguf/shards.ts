// Shard names of models split over several files: `name-00001-of-00003.gguf`. Used for files on the hub and local
// files. No disk or network access.

const shardPattern = /-(\d{5})-of-(\d{5})\.gguf$/i;
/** Maximum number of shards. A larger number is a mistake, or an attempt to make the program list too many names. */
const maxShards = 1024;

/** Returns the paths of all shards of the model to which the file `path` belongs; only `path` if it is not a shard. */
export function shardPaths(path: string): readonly string[] {
  const [suffix = "", , digits = ""] = shardPattern.exec(path) ?? [];
  const count = Number(digits);
  if (count < 1 || count > maxShards) return [path];
  const prefix = path.slice(0, -suffix.length);
  // The extension is copied from the name, because it may be in capitals.
  const extension = suffix.slice(-".gguf".length);
  return Array.from({ length: count }, (_, index) => {
    return `${prefix}-${String(index + 1).padStart(5, "0")}-of-${digits}${extension}`;
  });
}

/** Whether a name is that of one of several shards. */
export function isShardName(path: string): boolean {
  return shardPaths(path).length > 1;
}

/** Removes `.gguf` and the shard number from a path. */
export function stemOf(path: string): string {
  return path.replace(shardPattern, "").replace(/\.gguf$/i, "");
}
