// Owns the functions of llama.cpp's prediction heads. They stand in llama-ext.h of the known release, which is C++, so that
// libraries carry them under the names their compiler makes: the same on Linux and macOS, others on Windows. Bound only when
// a model with heads is loaded; abi.ts has everything else.
import type { LibraryHandle } from "koffi";
import { ServerError } from "../../../runtime/errors.ts";
import type { Pointer } from "../native/pointer.ts";

export interface PredictionFunctions {
  /** Whether passes give the hidden states that heads read: of every token, or only of those whose logits are wanted. */
  setStates(context: Pointer, wanted: boolean, onlyOutputs: boolean): void;
  /** Those of the last pass, in the order of its tokens (of its outputs). */
  getStates(context: Pointer): Pointer;
}

const pointer = "void*";

export function bindPrediction(library: LibraryHandle): PredictionFunctions {
  const bind = <F>(names: readonly string[], result: string, args: string[]): F => {
    for (const name of names) {
      try {
        return library.func(name, result, args) as F;
      } catch {
        // Not this compiler's name of it.
      }
    }
    const message = `the installed llama.cpp libraries export none of ${names.join(", ")}: leave out mtp_model and mtp_n_predict`;
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
