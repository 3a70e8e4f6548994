// The part of node:path that the engine uses.

export function basename(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}

export function dirname(path: string): string {
  return path.slice(0, Math.max(path.lastIndexOf("/"), 0));
}

export function join(...parts: readonly string[]): string {
  return parts.filter((part) => part !== "").join("/");
}
