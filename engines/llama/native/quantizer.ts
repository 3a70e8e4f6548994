// Quantizer: writes a copy of a GGUF file in another number type, with llama_model_quantize. Binding and struct layout
// are those of one llama.cpp release (llama.h); any other release is rejected, as in abi.ts.
import koffi from "koffi";
import { ServerError } from "../../../runtime/errors.ts";
import { type LlamaLibrary, lastWords, openLibrary } from "./library.ts";

const knownRelease = "v0.5.0";

export interface QuantizeOptions {
  /** llama_ftype: the target type of most matrices, for example 1 for F16 or 15 for Q4_K_M. */
  readonly fileType: number;
  /** Number of compute threads; 0: one per logical core. */
  readonly threads: number;
  /**
   * true: all matrices get the number type that `fileType` names. false (default): llama.cpp stores some matrices in a
   * larger type.
   */
  readonly pure?: boolean;
  /**
   * ggml_type of the token embedding, which models with tied embeddings also use as the output matrix; default:
   * llama.cpp's choice.
   */
  readonly embeddingType?: number;
}

interface QuantizeParams {
  nthread: number;
  ftype: number;
  token_embedding_type: number;
  allow_requantize: boolean;
  pure: boolean;
}

interface Quantizer {
  readonly library: LlamaLibrary;
  defaultParams(): QuantizeParams;
  /** Returns 0 on success. */
  quantize(source: string, target: string, params: QuantizeParams): number;
}

let opened: Promise<Quantizer> | null = null;

/**
 * Writes the GGUF file `source` to `target` with its matrices in another type. Matrices that are already quantised are
 * requantised. The native call blocks this thread until the file is written. Throws ServerError `config_invalid` if the
 * libraries do not load or belong to another release, and `model_file_invalid` with llama.cpp's reason if the
 * conversion fails; a partly written `target` may remain.
 */
export async function quantizeFile(source: string, target: string, options: QuantizeOptions): Promise<void> {
  opened ??= openQuantizer();
  const { library, defaultParams, quantize } = await opened;
  const { fileType, threads, pure = false, embeddingType } = options;
  const params: QuantizeParams = {
    ...defaultParams(),
    nthread: threads,
    ftype: fileType,
    allow_requantize: true,
    pure,
  };
  if (embeddingType !== undefined) params.token_embedding_type = embeddingType;
  library.withLog((lines) => {
    const status = quantize(source, target, params);
    if (status === 0) return;
    const reason = `status ${status}: ${lastWords(lines)}`;
    throw new ServerError(
      "model_file_invalid",
      `llama.cpp could not quantize "${source}" to type ${fileType}: ${reason}`,
    );
  });
}

async function openQuantizer(): Promise<Quantizer> {
  const library = await openLibrary(false);
  if (library.release !== knownRelease) throw unknownRelease(library.release);
  const paramsType = quantizeParamsType();
  const functions = koffi.load(library.path);
  const args = ["str", "str", koffi.pointer(paramsType)];
  return {
    library,
    defaultParams: functions.func("llama_model_quantize_default_params", paramsType, []) as Quantizer["defaultParams"],
    quantize: functions.func("llama_model_quantize", "uint32", args) as Quantizer["quantize"],
  };
}

function unknownRelease(release: string): ServerError {
  const message = `the installed llama.cpp libraries are release "${release}"; the quantizer knows ${knownRelease}. `;
  return new ServerError("config_invalid", `${message}Reinstall the dependencies with \`npm ci\`.`);
}

/** Returns the struct llama_model_quantize_params of the supported release. Exported for the layout test. */
export function quantizeParamsType() {
  return koffi.struct({
    nthread: "int32",
    ftype: "int32",
    output_tensor_type: "int32",
    token_embedding_type: "int32",
    allow_requantize: "bool",
    quantize_output_tensor: "bool",
    only_copy: "bool",
    pure: "bool",
    keep_split: "bool",
    dry_run: "bool",
    imatrix: "void*",
    kv_overrides: "void*",
    tt_overrides: "void*",
    prune_layers: "void*",
    max_buf_size: "size_t",
  });
}
