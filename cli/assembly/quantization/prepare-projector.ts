// Prepared projector: the projector file with which a model takes images. It is the file that the setting `mmproj` names, or the
// vision part of a checkpoint, which is converted into the cache once.
import { dirname, resolve } from "node:path";
import { hasVisionPart } from "../../../engines/files/checkpoint/vision/vision-part.ts";
import { formatOf } from "../../../engines/files/model-format.ts";
import { planProjector } from "../../../engines/quantization/conversion/plan-projector.ts";
import { dtypes } from "../../../engines/quantization/plan/types.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { convertedFile, fileName, type Preparation } from "./prepare-model.ts";
import { tokenizerOf } from "./load-options.ts";

/**
 * Returns the path of the projector file of the model at `source`; null: the model takes no images. Throws `config_invalid`,
 * `model_file_invalid` or `unsupported`.
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
  if (!isCheckpoint) {
    const message = "kind multimodal expects mmproj, the projector file of the model: set it";
    throw new ServerError("config_invalid", message, { param: "kind" });
  }
  const tokenizer = tokenizerOf(model);
  const conversion = await planProjector(dirname(source), { overrides, tokenizer, floatType: dtypes[model.dtype] });
  return await convertedFile(fileName(source, "mmproj", conversion.key), conversion, preparation);
}
