// OpenAPI description of POST /v1/images/generations.
import { modelErrors, type Operation, streamContent } from "../operation.ts";
import { imageRequestSchema } from "./request.ts";
import { imageEventSchema, imagesSchema } from "./wire.ts";

export const imageOperation: Operation = {
  id: "createImage",
  tag: "Inference",
  summary: "Create images",
  description:
    "Needs a model with kind diffusion. The images are made one after another. A stream tells each step, and sends each image when it is done.",
  body: imageRequestSchema,
  answers: {
    200: [
      { contentType: "application/json", schema: imagesSchema, description: "The images" },
      streamContent(imageEventSchema, "With stream: true, the progress and the images"),
    ],
  },
  errors: [...modelErrors, "storage_unavailable"],
};
