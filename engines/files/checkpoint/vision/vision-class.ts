// Vision class: how the vision part of a model family in Hugging Face's format becomes a projector file.
import type { Config, JsonObject } from "../config.ts";
import type { Pairs } from "../pairs.ts";
import type { TensorRules } from "../tensor-map.ts";

/** Fields of the three descriptions of a model with images. */
export interface VisionConfigs {
  /** The whole model; the fields of its text part come first. */
  readonly model: Config;
  /** The image encoder (vision_config). */
  readonly encoder: Config;
  /** How images are prepared (preprocessor_config.json). */
  readonly images: Config;
}

/** How the vision part of some classes becomes a projector file. */
export interface VisionClass extends TensorRules {
  /** Kind of the projector, the name of the rules. */
  readonly name: string;
  /** Names in the field `architectures` of config.json. */
  readonly classes: readonly string[];
  /** Values of the field `model_type` of vision_config that tell classes of one name apart; if it is not given, any. */
  readonly encoderTypes?: readonly string[];
  /** Values of fields that vision_config may leave out, as the official class has them. */
  readonly defaults: JsonObject;
  /** Token of the text model whose embedding ends each row of an image. Tensor rules read its id from the field `row_end_id`. */
  readonly rowEnd?: string;
  /** Changes the fields of the encoder that follow from those of the whole model. */
  readonly encoderFields?: (configs: VisionConfigs) => JsonObject;
  /** Adds the pairs that only these classes have. */
  readonly addPairs: (configs: VisionConfigs, pairs: Pairs) => void;
}
