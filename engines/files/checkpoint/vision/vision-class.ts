// Vision class: how the vision part of a model family in Hugging Face's format becomes a projector file.
import type { TensorTable } from "../architectures/architecture.ts";
import type { Config, JsonObject } from "../config.ts";
import type { Pairs } from "../pairs.ts";
import type { PartRules } from "../tensor-map.ts";

/** The three configs of a model with image input. */
export interface VisionConfigs {
  /** Config of the whole model; fields of its text model take precedence. */
  readonly model: Config;
  /** Config of the image encoder (vision_config). */
  readonly encoder: Config;
  /** Config of the image preprocessing (preprocessor_config.json). */
  readonly images: Config;
}

/** How the audio encoder of some classes, configured in the field audio_config, becomes a part of the projector file. */
export interface AudioClass extends PartRules {
  /** Kind of the projector, written as clip.audio.projector_type. */
  readonly name: string;
  /** Values of fields that audio_config may leave out, as the official class has them. */
  readonly defaults: JsonObject;
  /** Checks the fields that no pair can express, and adds the key/value pairs that only these classes have. */
  readonly addPairs: (encoder: Config, pairs: Pairs) => void;
}

/** How the vision part of some classes becomes a projector file. */
export interface VisionClass extends PartRules {
  /** Kind of the projector, written as clip.projector_type. */
  readonly name: string;
  /** Names in the field `architectures` of config.json. */
  readonly classes: readonly string[];
  /** Values of `model_type` in vision_config, to distinguish models with the same class name; absent = any. */
  readonly encoderTypes?: readonly string[];
  /** Values of fields that vision_config may leave out, as the official class has them. */
  readonly defaults: JsonObject;
  /** Fields that override those of the config of the image preprocessing. */
  readonly imageFields?: JsonObject;
  /** Audio encoder that models of these classes may have. */
  readonly audio?: AudioClass;
  /** Text token whose embedding ends each row of an image. Tensor rules read the token's id from the field `row_end_id`. */
  readonly rowEnd?: string;
  /** Returns the encoder's fields that follow from those of the whole model. */
  readonly encoderFields?: (configs: VisionConfigs) => JsonObject;
  /** Returns tensors whose names follow from vision_config, in addition to `tensors`. */
  readonly computedTensors?: (encoder: Config) => TensorTable;
  /** Adds the key/value pairs that only projector files of these classes have. */
  readonly addPairs: (configs: VisionConfigs, pairs: Pairs) => void;
}
