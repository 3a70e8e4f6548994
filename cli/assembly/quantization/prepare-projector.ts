// Prepared projector: the projector file that lets a model accept images. It is the file that the setting `mmproj` names, or it
// is converted from the vision part of a checkpoint, once, and kept in the cache.
import { dirname, resolve } from "node:path";
import { hasVisionPart } from "../../../engines/files/checkpoint/vision/vision-part.ts";
import { formatOf } from "../../../engines/files/model-format.ts";
import { planProjector } from "../../../engines/quantization/conversion/plan-projector.ts";
import { dtypes } from "../../../engines/quantization/plan/types.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { tokenizerOf } from "./load-options.ts";
import { convertedFile, fileName, type Preparation } from "./prepare-model.ts";

/**
 * Returns the path of the projector file of the model at `source`; null if the model accepts no images. Throws
 * `config_invalid`, `model_file_invalid` or `unsupported`.
 */
export async function prepareProjector(source: string, preparation: Preparation): Promise<string | null> {
  const { model, log } = preparation;
  const { mmproj } = model.format;
  if (mmproj !== null) return resolve(mmproj);
  const isCheckpoint = (await formatOf(source)) === "plain";
  const overrides = model.hfOverrides ?? {};
  if (model.kind !== "multimodal") {
    if (isCheckpoint && (await hasVisionPart(dirname(source), overrides)))
      log.info({ model: model.id }, "the model can take images: set kind = multimodal");
    return null;
  }
  const { maxNumImages, maxNumAudio } = model.multimodal;
  if (maxNumImages === 0 && maxNumAudio === 0) return null;
  if (!isCheckpoint) {
    const message = "kind multimodal expects mmproj, the projector file of the model: set it";
    throw new ServerError("config_invalid", message, { param: "kind" });
  }
  const tokenizer = tokenizerOf(model);
  const conversion = await planProjector(dirname(source), { overrides, tokenizer, floatType: dtypes[model.dtype] });
  return await convertedFile(fileName(source, "mmproj", conversion.key), conversion, preparation);
}
