// Errors for lack of file descriptors. Node.js and its module loader report it in several ways.
import { closeSync, openSync } from "node:fs";

/** Returns whether an error was caused by a lack of file descriptors, of the process or of the machine. */
export function isOutOfDescriptors(error: unknown): boolean {
  if (!(error instanceof Error && "code" in error)) return false;
  switch (error.code) {
    case "EMFILE":
    case "ENFILE":
      return true;
    // Node 24 could not read the package.json of a module.
    case "ERR_INVALID_PACKAGE_CONFIG":
      return error.message.includes("too many open files");
    // Node 20 takes a package.json that it cannot read for a missing one.
    case "MODULE_NOT_FOUND":
    case "ERR_MODULE_NOT_FOUND":
      return !canOpenFile();
    default:
      return false;
  }
}

function canOpenFile(): boolean {
  try {
    closeSync(openSync("/dev/null", "r"));
    return true;
  } catch (error) {
    return !isOutOfDescriptors(error);
  }
}
