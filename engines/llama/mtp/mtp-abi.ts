// MTP interface: llama.cpp's functions for multi-token prediction. llama-ext.h of the supported release declares them
// as C++, so libraries export them under mangled names, which are the same on Linux and macOS but not on Windows. They
// are bound only when a model with MTP is loaded. abi.ts binds all other functions.
import type { LibraryHandle } from "koffi";
import { ServerError } from "../../../runtime/errors.ts";
import type { Pointer } from "../native/pointer.ts";

export interface PredictionFunctions {
  /**
   * Enables or disables the output of the hidden states that MTP reads. `onlyOutputs`: only for the tokens with logits;
   * otherwise for all tokens of a pass.
   */
  setStates(context: Pointer, wanted: boolean, onlyOutputs: boolean): void;
  /** Returns the hidden states of the last pass, in the order of its tokens (or of its outputs). */
  getStates(context: Pointer): Pointer;
}

const pointer = "void*";

export function bindPrediction(library: LibraryHandle): PredictionFunctions {
  const bind = <F>(names: readonly string[], result: string, args: string[]): F => {
    for (const name of names) {
      try {
        return library.func(name, result, args) as F;
      } catch {
        // Tries the next name, because the library may export the function under the mangled name of another compiler.
      }
    }
    const message = `the installed llama.cpp libraries export none of ${names.join(", ")}: remove mtp_model and mtp_n_predict`;
    throw new ServerError("config_invalid", message, { param: "mtp_n_predict" });
  };
  return {
    setStates: bind<PredictionFunctions["setStates"]>(
      ["_Z26llama_set_embeddings_nextnP13llama_contextbb", "?llama_set_embeddings_nextn@@YAXPEAUllama_context@@_N1@Z"],
      "void",
      [pointer, "bool", "bool"],
    ),
    getStates: bind<PredictionFunctions["getStates"]>(
      ["_Z26llama_get_embeddings_nextnP13llama_context", "?llama_get_embeddings_nextn@@YAPEAMPEAUllama_context@@@Z"],
      pointer,
      [pointer],
    ),
  };
}
