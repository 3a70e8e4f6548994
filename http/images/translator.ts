// Translator from the body of POST /v1/images/generations to an image generation request.
import { acceptedBody } from "../shared/accepted-body.ts";
import type { BodyTranslator, Translation } from "../shared/translation.ts";
import { type AskedImages, askedImages, imageRequestSchema } from "./request.ts";

export interface ImageTranslation extends Translation {
  readonly asked: AskedImages;
}

export const imageTranslator: BodyTranslator<ImageTranslation> = {
  name: "images",
  translate(value, _parameters, unknownFields) {
    const { body, ignored } = acceptedBody(imageRequestSchema, value, unknownFields);
    return { model: body.model, ignored, asked: askedImages(body) };
  },
  pack: (translated) => ({ value: translated, transfer: [] }),
};
