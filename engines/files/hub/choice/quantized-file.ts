// Setting `quantized_file`: names a file if the model's source names none. For every kind of source.
import { ServerError } from "../../../../runtime/errors.ts";

/** The agreed file. Throws `config_invalid` if source and setting name different files. */
export function agreedFile(source: string, named: string | null, quantizedFile: string | null): string | null {
  if (named === null || quantizedFile === null || named === quantizedFile) return named ?? quantizedFile;
  const message = `"${source}" names "${named}" and quantized_file names "${quantizedFile}"; give one of them`;
  throw new ServerError("config_invalid", message, { param: "quantized_file" });
}
