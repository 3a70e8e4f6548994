// Open files of this process: their maximum and current number. Sockets count as files.
import { readdirSync, readFileSync, statSync } from "node:fs";

const ofLinux = "/proc/self/fd";
const ofOthers = "/dev/fd";

/** Returns the maximum number of open files of this process; Infinity if unknown. */
export function openFileLimit(): number {
  try {
    const [, soft = ""] = /^Max open files\s+(\d+)/m.exec(readFileSync("/proc/self/limits", "utf8")) ?? [];
    return soft === "" ? Number.POSITIVE_INFINITY : Number(soft);
  } catch {
    return limitInReport();
  }
}

function limitInReport(): number {
  const report = process.report?.getReport() as { userLimits?: { open_files?: { soft?: unknown } } } | undefined;
  const soft = report?.userLimits?.open_files?.soft;
  return typeof soft === "number" ? soft : Number.POSITIVE_INFINITY;
}

/** Returns the number of open files. Returns Infinity if no further file can be opened to count them. */
export function openFileCount(): number {
  return sizeOfLinux() || entryCount();
}

/** Returns the size of the folder /proc/self/fd, which is the number of open files on newer Linux and 0 on older Linux. */
function sizeOfLinux(): number {
  try {
    return statSync(ofLinux).size;
  } catch {
    return 0;
  }
}

function entryCount(): number {
  try {
    return readdirSync(process.platform === "linux" ? ofLinux : ofOthers).length;
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}
