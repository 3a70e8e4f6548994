// Mounts over /proc of the sandbox. If the server runs as root, the kernel treats the command as root too, although the command
// has no capabilities. The modes of files in /proc therefore do not protect these files. Process folders need no mounts,
// because the PID namespace has its own.
import { type Dirent, readdirSync, statSync } from "node:fs";
import { join } from "node:path";

/**
 * Files that are hidden whatever their mode is: their content depends on the privileges of the reader, or they control
 * the kernel.
 */
const privileged = new Set(["kallsyms", "kcore", "key-users", "keys", "kmsg", "sysrq-trigger", "timer_list"]);

/**
 * Returns arguments of bwrap that make folders and writable files of /proc read-only. The arguments also hide
 * `privileged` files, and files that are not readable for all users.
 */
export function procMounts(): readonly string[] {
  return readdirSync("/proc", { withFileTypes: true }).flatMap((entry) => mountsOf(entry));
}

function mountsOf(entry: Dirent): readonly string[] {
  const path = join("/proc", entry.name);
  if (/^\d+$/.test(entry.name) || entry.isSymbolicLink()) return [];
  if (entry.isDirectory()) return ["--ro-bind", path, path];
  const mode = modeOf(path);
  if (mode === null) return [];
  if (privileged.has(entry.name) || (mode & 0o004) === 0) return ["--ro-bind", "/dev/null", path];
  return (mode & 0o222) === 0 ? [] : ["--ro-bind", path, path];
}

function modeOf(path: string): number | null {
  try {
    return statSync(path).mode;
  } catch {
    return null;
  }
}
