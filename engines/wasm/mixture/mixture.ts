// Mixture loading: converts a MixtureSpec (X-LoRA) to the description that the compute threads use. It checks the
// mixture against the model and the adapters' files. The result is plain data and needs no further checks.
import { createHash } from "node:crypto";
import { basename } from "node:path";
import { ServerError } from "../../../runtime/errors.ts";
import type { ClassifierLayer, MixtureSpec } from "../../engine.ts";
import { ranksOf, readAdapterFile, stackedRanks } from "../adapters/file.ts";
import { type AdapterSite, adapterSites } from "../adapters/sites.ts";
import type { Matrix } from "../graph/graph-tensors.ts";
import type { AdapterRanks, Mixture } from "../plan/mixture.ts";
import { divideGraph, type PartitionPlan } from "../plan/partition-plan.ts";

/** GGUF's type number of F32. */
const f32 = 0;
/**
 * The number of columns of a product must be a multiple of this number. Therefore the number of rows of the previous
 * classifier layer is padded to such a multiple.
 */
const columnGrain = 32;

export interface LoadedMixture {
  readonly mixture: Mixture;
  /** Values of the classifier. For each of its layers: the weights row by row, then the bias. */
  readonly classifier: SharedArrayBuffer;
  /** Digest that identifies the content of the mixture. */
  readonly digest: string;
}

/** Data that the leader needs to run a mixture. All adapters are stacked into one adapter, which every row uses. */
export interface MixtureParts {
  /** Address of the stacked adapter; it is the same in the memories of all threads. */
  readonly address: number;
  /**
   * Number of decoded tokens after which a sequence keeps the weights of its adapters; null = they are computed for every token.
   * See MixtureSpec.keptAfter.
   */
  readonly keptAfter: number | null;
}

/**
 * Loads a mixture. Throws invalid_lora_adapter if it does not fit the model, and the errors of reading prepared
 * adapters.
 */
export async function loadMixture(
  spec: MixtureSpec,
  model: Pick<PartitionPlan, "graph" | "shape" | "threads">,
  maxSequences: number,
): Promise<LoadedMixture> {
  const layers = checkClassifier(spec, model.shape.width);
  const sites = adapterSites(divideGraph({ ...model, mixture: null }));
  const files = await Promise.all(spec.adapters.map((path) => readAdapterFile(path, sites, Number.POSITIVE_INFINITY)));
  const ranks = files.map(ranksOf);
  if (ranks.flat(3).every((rank) => rank === 0)) throw invalid("its adapters change none of its matrices");
  const { rectifies, temperature, topAdapters, normalisesTop, globalWeight, firstPassWeight } = spec;
  const mixture: Mixture = {
    ...{ rectifies, temperature, topAdapters, normalisesTop, globalWeight, firstPassWeight },
    adapters: spec.adapters.length,
    layers,
    layerOf: layersOf(spec, layers, sites, ranks),
    ranks,
    classifier: spec.classifier.map((layer, i) => classifierMatrix(layer, i, spec.classifier.length)),
    keptSlots: spec.keptAfter === null ? 0 : maxSequences,
  };
  const classifier = classifierValues(spec.classifier, mixture.classifier);
  return { mixture, classifier, digest: digestOf(spec, classifier) };
}

/** Returns the maximum rank of a matrix in the stacked adapter. */
export function mixtureRank({ ranks }: Mixture): number {
  return Math.max(...stackedRanks(ranks).flat());
}

/** Returns views of the weights and the bias of each classifier layer. */
export function classifierViews(
  { classifier }: Mixture,
  values: SharedArrayBuffer,
): { readonly weight: Float32Array; readonly bias: Float32Array }[] {
  let at = 0;
  const take = (floats: number) => {
    at += floats * Float32Array.BYTES_PER_ELEMENT;
    return new Float32Array(values, at - floats * Float32Array.BYTES_PER_ELEMENT, floats);
  };
  return classifier.map(({ rows, columns }) => ({ weight: take(rows * columns), bias: take(rows) }));
}

/**
 * Checks that the classifier fits the model. Returns the number of model layers for which it outputs separate adapter
 * weights.
 */
function checkClassifier({ adapters, classifier, layerwise }: MixtureSpec, width: number): number {
  let columns = width;
  for (const [i, layer] of classifier.entries()) {
    const { rows, weight, bias } = layer;
    if (layer.columns !== columns) throw invalid(`layer ${i} takes ${layer.columns} numbers; expected ${columns}`);
    if (weight.length !== rows * columns || (bias !== null && bias.length !== rows)) {
      throw invalid(`layer ${i} does not hold the ${rows} x ${columns} weights and ${rows} biases it should`);
    }
    if (![weight, bias ?? weight].every((values) => values.every(Number.isFinite))) {
      throw invalid(`layer ${i} holds a NaN or an infinity`);
    }
    columns = rows;
  }
  const outputs = classifier.at(-1)?.rows ?? 0;
  const layers = layerwise ? outputs / adapters.length : 1;
  if (layers >= 1 && Number.isInteger(layers) && layers * adapters.length === outputs) return layers;
  throw invalid(`it gives ${outputs} weights; expected the same number for each of ${adapters.length} adapters`);
}

function layersOf(
  spec: MixtureSpec,
  layers: number,
  sites: readonly AdapterSite[],
  ranks: readonly AdapterRanks[],
): number[][] {
  const isChanged = (site: number, matrix: number) => ranks.some((own) => (own[site]?.[matrix] ?? 0) > 0);
  return sites.map(({ matrices }, site) =>
    matrices.map(({ tensor: { name } }, matrix) => {
      if (!spec.layerwise || !isChanged(site, matrix)) return 0;
      const layer = spec.layers[name];
      if (layer !== undefined && Number.isInteger(layer) && layer >= 0 && layer < layers) return layer;
      throw invalid(`adapters change "${name}", whose layer is ${layer}; expected a whole number below ${layers}`);
    }),
  );
}

function classifierMatrix({ rows, columns }: ClassifierLayer, index: number, count: number): Matrix {
  const padded = index === count - 1 ? rows : paddedTo(rows);
  const shape = [paddedTo(columns), padded];
  const bytes = shape.reduce((one, other) => one * other, Float32Array.BYTES_PER_ELEMENT);
  const name = `classifier ${index}`;
  const tensor = { name, type: f32, shape, file: 0, offset: 0, bytes };
  // The matrix has no bias, because classifier.ts adds the bias itself.
  return { name, tensor, firstRow: 0, rows: padded, columns: paddedTo(columns), bias: null };
}

function classifierValues(layers: readonly ClassifierLayer[], matrices: readonly Matrix[]): SharedArrayBuffer {
  const floats = matrices.reduce((sum, { rows, columns }) => sum + rows * (columns + 1), 0);
  const buffer = new SharedArrayBuffer(floats * Float32Array.BYTES_PER_ELEMENT);
  const values = new Float32Array(buffer);
  let at = 0;
  for (const [i, { rows, columns, weight, bias }] of layers.entries()) {
    const matrix = matrices[i] as Matrix;
    for (let row = 0; row < rows; row++) {
      values.set(weight.subarray(row * columns, (row + 1) * columns), at + row * matrix.columns);
    }
    at += matrix.rows * matrix.columns;
    if (bias) values.set(bias, at);
    at += matrix.rows;
  }
  return buffer;
}

function paddedTo(count: number): number {
  return Math.ceil(count / columnGrain) * columnGrain;
}

/**
 * Returns the digest of a mixture: a hash of its rules, its classifier and the file names of its prepared adapters. The
 * file names are hashes of the files' content.
 */
function digestOf({ adapters, classifier, ...rules }: MixtureSpec, values: SharedArrayBuffer): string {
  const said = JSON.stringify([adapters.map((path) => basename(path)), rules]);
  return createHash("sha256").update(said).update(new Uint8Array(values)).digest("hex");
}

function invalid(problem: string): ServerError {
  return new ServerError("invalid_lora_adapter", `the X-LoRA does not fit the model: ${problem}; check its classifier`);
}
