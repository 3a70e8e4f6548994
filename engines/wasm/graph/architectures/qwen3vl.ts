// Qwen3-VL: qwen3 with a rope in three dimensions (M-RoPE), whose sections are interleaved: time, row, column, time and so on. The
// embedding of an image's token has further vectors, which are added to the hidden state after the first layers (DeepStack).
import type { Keys } from "../keys.ts";
import type { CommonShape, OwnTraits } from "../shape.ts";
import type { Architecture } from "./architecture.ts";
import { readSections, type Sections } from "./qwen2vl.ts";
import { qwen3 } from "./qwen3.ts";
import { qwen3moe } from "./qwen3moe.ts";

export const qwen3vl: Architecture = { ...qwen3, name: "qwen3vl", readTraits };

export const qwen3vlMoe: Architecture = {
  ...qwen3moe,
  name: "qwen3vlmoe",
  readTraits: (keys, shape) => ({ ...qwen3moe.readTraits?.(keys, shape), ...readTraits(keys, shape) }),
};

function readTraits(keys: Keys, shape: CommonShape): OwnTraits {
  return {
    stackedInputs: keys.countOrNone("n_deepstack_layers", shape.layers - 1),
    rope: { axes: interleavedAxes(readSections(keys, shape)) },
  };
}

/** Returns the coordinate that rotates each pair. A pair whose section is used up is rotated by time, as in transformers; llama.cpp
 * does not rotate it. The frequencies of such pairs are almost 0. */
function interleavedAxes([time, rows, columns]: Sections): Uint8Array {
  return Uint8Array.from({ length: time + rows + columns }, (_, pair) => {
    const axis = pair % 3;
    return pair < 3 * ([time, rows, columns][axis] as number) ? axis : 0;
  });
}
