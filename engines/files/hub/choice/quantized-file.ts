// Owns the setting `quantized_file`: it names a file where the model's source names none. Used for every kind of source.
import { ServerError } from "../../../../runtime/errors.ts";

/** The file that is meant. Throws config_invalid where the source names one and the setting another. */
export function agreedFile(source: string, named: string | null, quantizedFile: string | null): string | null {
  if (named === null || quantizedFile === null || named === quantizedFile) return named ?? quantizedFile;
  const message = `"${source}" names "${named}" and quantized_file names "${quantizedFile}"; give one of them`;
  throw new ServerError("config_invalid", message, { param: "quantized_file" });
}
