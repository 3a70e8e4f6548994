// Kind of the value of device_layers: the number of layers on each GPU. Used by the table of keys.
import { z } from "zod";

export interface DeviceLayers {
  /** Index of the GPU, from 0. */
  readonly device: number;
  readonly layers: number;
}

const maxDevices = 128;
const maxLayers = 10_000;

/**
 * Parses `16`, `0:16;1:16`, or a list of texts such as `0:16`. A plain number is the number of layers on GPU 0. Returns other
 * values unchanged.
 */
function readLayers(given: unknown): unknown {
  const parts = (Array.isArray(given) ? given : String(given).split(";")).map((part) => String(part).trim());
  const entries = parts.map((part) => /^(?:(\d{1,4}):)?(\d{1,6})$/.exec(part));
  const isPlain = (entry: RegExpExecArray | null) => entry?.[1] === undefined;
  if (entries.includes(null) || (entries.length > 1 && entries.some(isPlain))) return given;
  return entries.map((entry) => ({ device: Number(entry?.[1] ?? 0), layers: Number(entry?.[2]) }));
}

const entry = z.strictObject({
  device: z
    .int()
    .min(0)
    .max(maxDevices - 1),
  layers: z.int().min(0).max(maxLayers),
});

export const deviceLayers = {
  type: z.preprocess(
    readLayers,
    z
      .array(entry)
      .min(1)
      .refine((entries) => new Set(entries.map(({ device }) => device)).size === entries.length)
      .readonly(),
  ),
  expects: "a number of layers, or numbers by GPU such as 0:16;1:16, each GPU once",
  shows: "DEVICE:LAYERS;…",
  read: (text: string): unknown => text,
};
