// Request of POST /v1/images/generations: its schema and its translation to an image generation request.
import { randomInt } from "node:crypto";
import { z } from "zod";
import type { ImageGenerationRequest } from "../../actors/api/images/image-generation.ts";
import { schedulerNames } from "../../engines/diffusion/schedulers/config.ts";
import { ServerError } from "../../runtime/errors.ts";
import { expected } from "../issues.ts";
import { commonFields, ignored, refused, streamField } from "../shared/fields/fields.ts";

const MAX_PROMPT_LENGTH = 32_000;
const MAX_IMAGES = 10;
const MAX_PARTIALS = 3;
const MAX_SIDE = 16_384;
const MAX_GUIDANCE = 100;
/** Maximum seed in a request. Seed plus image index then stays a safe integer. */
const MAX_SEED = Number.MAX_SAFE_INTEGER - MAX_IMAGES;
/** Number of different random seeds. */
const SEEDS = 2 ** 32;

const side = z.int().min(1).max(MAX_SIDE);
const formats = { url: "url", Url: "url", b64_json: "b64_json", B64Json: "b64_json" } as const;
const formatNames = Object.keys(formats) as (keyof typeof formats)[];

export const imageRequestSchema = z
  .strictObject({
    model: commonFields.model,
    prompt: z.string().min(1).max(MAX_PROMPT_LENGTH).meta({ description: "Description of the image." }),
    negative_prompt: z
      .string()
      .max(MAX_PROMPT_LENGTH)
      .nullish()
      .meta({ description: "What the image should not show; only with a guidance_scale above 1." }),
    n: z.int().min(1).max(MAX_IMAGES).nullish().meta({
      description: "Number of images, made one after another. Image i has the seed `seed` + i.",
      default: 1,
    }),
    size: z
      .string()
      .regex(/^(?:auto|[1-9]\d{0,4}x[1-9]\d{0,4})$/, { error: expected('WIDTHxHEIGHT such as 512x512, or "auto"') })
      .nullish()
      .meta({ description: "Width and height in pixels: multiples of what the model takes.", default: "auto" }),
    width: side.nullish().meta({ description: "Width in pixels, instead of size." }),
    height: side.nullish().meta({ description: "Height in pixels, instead of size." }),
    response_format: z.enum(formatNames).nullish().meta({
      description: "url: the image is a file of this server for 30 minutes. b64_json: it is in the response.",
      default: "url",
    }),
    output_format: z.literal("png").nullish().meta({ description: "Format of the images; only png.", default: "png" }),
    output_compression: refused("PNG images are lossless", (value) => value === 100),
    background: refused("the models generate no transparency", (value) => value === "auto" || value === "opaque"),
    quality: ignored(z.string(), "the quality depends on the model, steps and guidance_scale"),
    style: ignored(z.string(), "the style depends on the model and the prompt"),
    moderation: ignored(z.string(), "the server has no moderation"),
    seed: z.int().min(0).max(MAX_SEED).nullish().meta({ description: "Seed of the noise. Random by default." }),
    steps: z.int().min(1).nullish().meta({ description: "Number of denoising steps. Default: by the model." }),
    guidance_scale: z.number().min(0).max(MAX_GUIDANCE).nullish().meta({
      description: "Strength of classifier-free guidance; up to 1 there is none. Default: by the model.",
    }),
    scheduler: z.enum(schedulerNames).nullish().meta({ description: "Scheduler of the steps. Default: by the model." }),
    truncate_sequence: z.boolean().nullish().meta({
      description: "Cut a prompt that the model cannot read as a whole instead of refusing it.",
      default: false,
    }),
    stream: streamField,
    partial_images: z.int().min(0).max(MAX_PARTIALS).nullish().meta({
      description: "Number of unfinished images that a stream sends of each image.",
      default: 0,
    }),
    user: commonFields.user,
  })
  .superRefine((body, context) => {
    if (body.size && body.size !== "auto" && (body.width || body.height)) {
      context.addIssue({ code: "custom", path: ["size"], message: "expected size, or width and height, got both" });
    }
    if (body.partial_images && !body.stream) {
      const message = "expected 0 without stream: true, as unfinished images are only streamed";
      context.addIssue({ code: "custom", path: ["partial_images"], message });
    }
  });

export type ImageRequestBody = z.output<typeof imageRequestSchema>;

export type ImageFormat = "url" | "b64_json";

/** Image request, and the properties that determine the form of the response. */
export interface AskedImages {
  /** Image request without the fields `model` and `client`. */
  readonly generation: Omit<ImageGenerationRequest, "model" | "client">;
  readonly isStreamed: boolean;
  /** Requested image format; null: the default of the server. */
  readonly format: ImageFormat | null;
}

export function askedImages(body: ImageRequestBody): AskedImages {
  const [width, height] = sizeOf(body);
  return {
    isStreamed: body.stream ?? false,
    format: body.response_format ? formats[body.response_format] : null,
    generation: {
      count: body.n ?? 1,
      partials: body.partial_images ?? 0,
      image: {
        prompt: body.prompt,
        negativePrompt: body.negative_prompt || null,
        width,
        height,
        steps: body.steps ?? null,
        guidance: body.guidance_scale ?? null,
        scheduler: body.scheduler ?? null,
        seed: body.seed ?? randomInt(SEEDS),
        truncatesPrompt: body.truncate_sequence ?? false,
      },
    },
  };
}

function sizeOf({ size, width, height }: ImageRequestBody): readonly [width: number | null, height: number | null] {
  const [, wide, high] = /^(\d+)x(\d+)$/.exec(size ?? "") ?? [];
  if (wide === undefined || high === undefined) return [width ?? null, height ?? null];
  for (const one of [wide, high]) {
    if (Number(one) <= MAX_SIDE) continue;
    throw new ServerError("invalid_value", `expected sides of at most ${MAX_SIDE} pixels, got ${size}`, {
      param: "size",
    });
  }
  return [Number(wide), Number(high)];
}
