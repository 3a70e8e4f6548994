// Setting `quantized_file`: names the model file if the model source names no file. Used for all kinds of sources.
import { ServerError } from "../../../../runtime/errors.ts";

/**
 * Returns the file named by the source or by the setting; null if neither names one. Throws `config_invalid` if they
 * name different files.
 */
export function agreedFile(source: string, named: string | null, quantizedFile: string | null): string | null {
  if (named === null || quantizedFile === null || named === quantizedFile) return named ?? quantizedFile;
  const message = `"${source}" names "${named}" and quantized_file names "${quantizedFile}"; give one of them`;
  throw new ServerError("config_invalid", message, { param: "quantized_file" });
}
