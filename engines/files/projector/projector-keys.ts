// Keys of a projector file of images, with typed look-ups.
import { ServerError } from "../../../runtime/errors.ts";
import type { GgufValue } from "../gguf/cursor.ts";
import { describeValue } from "../gguf/invalid-file.ts";
import { type EncoderSizes, type ProjectorKind, projectors, type SliceRules } from "./image-rules.ts";
import { ProjectorHeader } from "./projector-header.ts";

/** Maximum number of widths and heights in a list of grids. */
const maxPinpoints = 256;
/** Version numbers of MiniCPM-V in files: `nested` = 2.5, `plain` = later versions, whose tiles have the same tags as those of 2.6. */
const minicpmVersions = { nested: [0, 2], plain: [3, 4, 5, 6, 100_045] };
/** Number of queries if the file does not state it: of MiniCPM-V 2.5, and of later versions. */
const minicpmQueries = { nested: 96, plain: 64 };

export class ProjectorKeys extends ProjectorHeader {
  constructor(path: string, fields: ReadonlyMap<string, GgufValue>) {
    super(path, fields, "vision");
  }

  projector(): ProjectorKind {
    const kind = this.fields.get("clip.projector_type") ?? this.fields.get("clip.vision.projector_type") ?? "mlp";
    const known = projectors.find((name) => name === kind);
    if (known !== undefined) return known;
    const message = `${this.path} has the projector ${describeValue(kind)}; expected ${projectors.join(", ")}`;
    throw new ServerError("unsupported", message, { param: "mmproj" });
  }

  /** Whether the version of MiniCPM-V is 2.5. Throws `unsupported` for an unknown version. */
  hasNestedSlices(): boolean {
    const version = this.fields.get("clip.minicpmv_version") ?? 0;
    const { nested, plain } = minicpmVersions;
    if (nested.some((one) => one === version)) return true;
    if (plain.some((one) => one === version)) return false;
    const known = [...nested, ...plain].join(", ");
    const message = `${this.path} has clip.minicpmv_version ${describeValue(version)}; expected one of ${known}`;
    throw new ServerError("unsupported", message, { param: "mmproj" });
  }

  queries(): number {
    const value = this.fields.get("clip.minicpmv_query_num") ?? 0;
    if (value === 0) return this.hasNestedSlices() ? minicpmQueries.nested : minicpmQueries.plain;
    if (typeof value === "number" && Number.isInteger(value) && value >= 1 && value <= 4096) return value;
    throw this.invalid(
      `its clip.minicpmv_query_num is ${describeValue(value)}; expected a whole number from 1 to 4096`,
    );
  }

  /** Returns the grids of LLaVA 1.6, which the key lists as width and height in pixels in turn; null = the file has none. */
  pinpoints(tileSize: number): SliceRules | null {
    const key = "image_grid_pinpoints";
    const value = this.value(key);
    if (value === undefined) return null;
    const isTiles = (one: unknown) =>
      typeof one === "number" && one > 0 && one <= 64 * tileSize && one % tileSize === 0;
    if (!Array.isArray(value) || value.length % 2 !== 0 || value.length > maxPinpoints || !value.every(isTiles)) {
      throw this.invalidKey(key, `at most ${maxPinpoints / 2} pairs of multiples of ${tileSize}`);
    }
    const tiles = (value as number[]).map((length) => length / tileSize);
    const grids = Array.from({ length: tiles.length / 2 }, (_, i) => tiles.slice(2 * i, 2 * i + 2) as [number, number]);
    return grids.length === 0 ? null : { kind: "grids", grids };
  }

  channels(key: string): [number, number, number] {
    const value = this.value(key);
    const isNumber = (one: unknown) => typeof one === "number" && Number.isFinite(one);
    if (Array.isArray(value) && value.length === 3 && value.every(isNumber)) return value as [number, number, number];
    throw this.invalidKey(key, "three numbers");
  }

  /** `fallback`: activation of a file without a key for it. */
  activation(fallback: EncoderSizes["activation"] = "quickGelu"): EncoderSizes["activation"] {
    if (this.fields.get("clip.use_gelu") === true) return "gelu";
    return this.fields.get("clip.use_silu") === true ? "silu" : fallback;
  }
}
