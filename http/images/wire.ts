// Wire formats of images: the response, and the events of a stream.
import { z } from "zod";

const count = z.int().min(0);

const usage = z.strictObject({
  input_tokens: count.meta({ description: "Tokens of the prompt, once for each image." }),
  output_tokens: count.meta({ description: "Always 0: a diffusion model computes no tokens." }),
  total_tokens: count,
  input_tokens_details: z.strictObject({ text_tokens: count, image_tokens: count }),
});

export type ImageUsage = z.output<typeof usage>;

const common = {
  created_at: count.meta({ description: "Unix time in seconds." }),
  size: z.string().meta({ description: "WIDTHxHEIGHT in pixels." }),
  quality: z.literal("auto"),
  background: z.literal("opaque"),
  output_format: z.literal("png"),
};

const image = z.strictObject({
  url: z.string().optional().meta({ description: "Address of the file on this server." }),
  b64_json: z.string().optional(),
  seed: count.meta({ description: "Seed that makes the same image again." }),
});

export type WireImage = z.output<typeof image>;

export const imagesSchema = z
  .strictObject({
    created: count.meta({ description: "Unix time in seconds." }),
    data: z.array(image).min(1),
    size: common.size,
    quality: common.quality,
    background: common.background,
    output_format: common.output_format,
    usage,
  })
  .meta({ id: "Images" });

export const imageEventSchema = z
  .discriminatedUnion("type", [
    z.strictObject({
      type: z.literal("image_generation.in_progress"),
      image_index: count,
      step: count,
      steps: count,
    }),
    z.strictObject({
      type: z.literal("image_generation.partial_image"),
      ...common,
      image_index: count,
      partial_image_index: count,
      b64_json: z.string(),
    }),
    z.strictObject({
      type: z.literal("image_generation.completed"),
      ...common,
      image_index: count,
      ...image.shape,
      usage,
    }),
  ])
  .meta({ id: "ImageEvent" });

export type ImageEvent = z.output<typeof imageEventSchema>;

/** Fields of every image. */
export function commonImageFields(width: number, height: number) {
  return { size: `${width}x${height}`, quality: "auto", background: "opaque", output_format: "png" } as const;
}

export function imageUsage(promptTokens: number): ImageUsage {
  const input_tokens_details = { text_tokens: promptTokens, image_tokens: 0 };
  return { input_tokens: promptTokens, output_tokens: 0, total_tokens: promptTokens, input_tokens_details };
}
