// File name check: one rule for all names that clients and models give to files. Used for uploads, file parts, requested files
// and produced files.
import { ServerError } from "../../runtime/errors.ts";

const MAX_SEGMENT_BYTES = 255;
const MAX_NAME_BYTES = 1024;
/**
 * Control, private-use and unassigned characters, and characters that change how a name is shown: bidirectional marks,
 * zero-width characters, separators.
 */
const hidden = /[\p{Cc}\p{Cf}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/u;
/** Unpaired surrogate. */
const halfCharacter = /\p{Cs}/u;
/** Device names on Windows, with any file extension. */
const device =
  /^(?:con|prn|aux|nul|clock\$|conin\$|conout\$|com[0-9\u00b9\u00b2\u00b3]|lpt[0-9\u00b9\u00b2\u00b3])(?:\..*)?$/i;

/**
 * Returns the name in Unicode normalisation form C. Throws invalid_value if the name could escape its folder, or could be shown
 * or stored as another name. `allowsFolders`: the name may be a relative path with `/`.
 */
export function checkedFileName(name: string, allowsFolders: boolean): string {
  if (halfCharacter.test(name)) throw invalid(name, "it has half of a surrogate pair");
  const normal = name.normalize("NFC");
  if (normal === "") throw invalid(name, "it is empty");
  if (Buffer.byteLength(normal) > MAX_NAME_BYTES) throw invalid(name, `it is longer than ${MAX_NAME_BYTES} bytes`);
  if (hidden.test(normal)) throw invalid(name, "it has control or invisible characters");
  if (normal.includes("\\")) throw invalid(name, "it has a backslash");
  if (!allowsFolders && normal.includes("/")) throw invalid(name, "it has a slash");
  for (const segment of normal.split("/")) {
    const problem = segmentProblem(segment);
    if (problem !== null) throw invalid(name, problem);
  }
  return normal;
}

function segmentProblem(segment: string): string | null {
  if (segment === "") return "it is an absolute path or has an empty folder name";
  if (segment === "." || segment === "..") return 'it has "." or ".." as a folder';
  if (Buffer.byteLength(segment) > MAX_SEGMENT_BYTES) return `a part of it is longer than ${MAX_SEGMENT_BYTES} bytes`;
  if (/[. ]$/u.test(segment) || segment.startsWith(" "))
    return "a part of it begins with a space, or ends with a space or a dot";
  if (/[<>:"|?*]/u.test(segment)) return 'it has one of the characters < > : " | ? *';
  return device.test(segment) ? "it is the name of a device" : null;
}

function invalid(name: string, problem: string): ServerError {
  const shown = JSON.stringify(name.length > 100 ? `${name.slice(0, 100)}…` : name);
  return new ServerError("invalid_value", `expected a file name; ${shown} cannot be used: ${problem}`, {
    param: "file",
  });
}
