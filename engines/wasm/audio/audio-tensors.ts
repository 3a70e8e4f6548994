import { type AudioProjectorFile, isAudioTensor } from "../../files/projector/audio-projector.ts";
import type { GraphTensors } from "../graph/graph-tensors.ts";
import { mediaTensors } from "../graph/media-graph.ts";

/** Opens the tensors of a projector file for the graph of its audio encoder, which ignores those of an image encoder. */
export function audioTensors({ table }: Pick<AudioProjectorFile, "table">): GraphTensors {
  const imageTensors = [...table.tensors.keys()].filter((name) => !isAudioTensor(name));
  return mediaTensors(table, imageTensors);
}
