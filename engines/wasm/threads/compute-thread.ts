// Compute thread: holds its slices of the weights and runs passes over them. Every thread runs the same program on its
// own rows of each matrix. After each product the threads gather the results; each thread computes everything else for
// itself.
import { AdapterPass, type AdapterScratch } from "../adapters/pass.ts";
import { adapterPlaces } from "../adapters/places.ts";
import type { Rope } from "../graph/ropes.ts";
import type { ThreadPages } from "../kv/page-memory.ts";
import { ThreadKv } from "../kv/thread-kv.ts";
import type { KernelExports } from "../load/kernel-exports.ts";
import { createMemory, instantiateKernels, type KernelMemory, type KernelModule } from "../load/kernel-module.ts";
import { loadWeights } from "../load/weights.ts";
import { Classifier } from "../mixture/classifier.ts";
import { MixtureWeights } from "../mixture/weights.ts";
import { AttentionBlock } from "../pass/attention-block.ts";
import { EmbeddingTables } from "../pass/embedding-tables.ts";
import { Experts } from "../pass/experts.ts";
import { FeedForward } from "../pass/feed-forward.ts";
import { Pooler } from "../pass/pooler.ts";
import { fillRotation } from "../pass/rotation.ts";
import { multiplyPlace, type StepParts } from "../pass/step-runner.ts";
import { type DividedGraph, type DividedStep, divideGraph, type PartitionPlan } from "../plan/partition-plan.ts";
import { PassDescriptor } from "../plan/pass-descriptor.ts";
import { AllGather } from "./all-gather.ts";
import type { SharedBlocks } from "./shared-blocks.ts";
import { ThreadGroup } from "./thread-group.ts";
import { layOut, longestMemoryPages, type ThreadMemory } from "./thread-memory.ts";
import { ThreadNorms } from "./thread-norms.ts";
import { ThreadProducts } from "./thread-products.ts";

const floatBytes = 4;

export class ComputeThread {
  readonly team: ThreadGroup;
  readonly order: PassDescriptor;
  readonly #blueprint: PartitionPlan;
  readonly #divided: DividedGraph;
  readonly #index: number;
  readonly #kernels: KernelExports;
  readonly #at: ThreadMemory;
  /** Grows for adapters only, by the host's calls; existing addresses never move. */
  readonly memory: KernelMemory;
  readonly #bytes: Uint8Array;
  readonly #floats: Float32Array;
  /** Rotation tables, by rope. */
  readonly #rotations: readonly Float32Array[];
  readonly #exchange: AllGather;
  readonly #norms: ThreadNorms;
  readonly #products: ThreadProducts;
  readonly #kv: ThreadKv;
  /** Null if the model takes no adapters. */
  readonly #adapters: AdapterPass | null;
  /** Null if no classifier weighs adapters. */
  readonly #mixture: { readonly classifier: Classifier; readonly weights: MixtureWeights } | null;
  readonly #parts: StepParts;
  readonly #attention: AttentionBlock;
  readonly #feedForward: FeedForward;
  /** Null if the model has no experts. */
  readonly #experts: Experts | null;
  /** Null if nothing is added to the embedding. */
  readonly #tables: EmbeddingTables | null;
  readonly #logits: Float32Array;

  constructor(blueprint: PartitionPlan, index: number, kernels: KernelModule, shared: SharedBlocks) {
    this.#blueprint = blueprint;
    this.#index = index;
    this.#divided = divideGraph(blueprint);
    this.team = new ThreadGroup(shared.control, index, blueprint.threads);
    this.order = new PassDescriptor(shared.order, blueprint);
    this.#at = layOut(blueprint, this.#divided, instantiateKernels(kernels, createMemory(1)), index);
    const { wasmPages, adapters, rotation, rotationBytes } = this.#at;
    this.memory = createMemory(wasmPages, adapters ? longestMemoryPages : wasmPages);
    const { buffer } = this.memory;
    this.#kernels = instantiateKernels(kernels, this.memory);
    this.#bytes = new Uint8Array(buffer);
    this.#floats = new Float32Array(buffer);
    const rotated = blueprint.passTokens * blueprint.shape.rotated;
    this.#rotations = blueprint.shape.ropes.map(
      (_, rope) => new Float32Array(buffer, rotation + rope * rotationBytes, rotated),
    );
    this.#logits = new Float32Array(shared.logits);
    this.#exchange = new AllGather(this.team, this.#at, this.#bytes, shared.bus);
    this.#norms = new ThreadNorms(blueprint, this.#kernels, this.#at);
    const lent = { kernels: this.#kernels, at: this.#at, exchange: this.#exchange, norms: this.#norms };
    this.#products = new ThreadProducts({ ...lent, shape: blueprint.shape, index });
    this.#kv = new ThreadKv(blueprint, index, this.order, this.#kernels, this.#at, buffer);
    this.#mixture = this.#createMixture(shared.classifier);
    this.#adapters = adapters && this.#createAdapterPass(adapters, shared.adapterBus);
    const parts: StepParts = { ...lent, blueprint, products: this.#products, adapters: this.#adapters };
    this.#parts = parts;
    this.#attention = new AttentionBlock(parts, this.#kv);
    this.#feedForward = new FeedForward(parts);
    this.#experts = blueprint.shape.experts && new Experts(parts, blueprint.shape.experts, this.#floats);
    const { embeddingNorm: norm } = blueprint.graph;
    this.#tables = norm && new EmbeddingTables({ ...parts, order: this.order, tables: this.#divided, norm });
  }

  #createMixture(values: SharedArrayBuffer | null) {
    const { mixture } = this.#blueprint;
    if (!mixture || !values) return null;
    const divided = this.#divided;
    const floats = this.#floats;
    const places = adapterPlaces(divided);
    const parts = { blueprint: this.#blueprint, mixture, places, index: this.#index, order: this.order, floats };
    return {
      classifier: new Classifier(mixture, values, divided, this.#products, this.#at, floats),
      weights: new MixtureWeights(parts),
    };
  }

  #createAdapterPass(scratch: AdapterScratch, bus: SharedArrayBuffer): AdapterPass {
    return new AdapterPass({
      blueprint: this.#blueprint,
      divided: this.#divided,
      index: this.#index,
      order: this.order,
      kernels: this.#kernels,
      scratch,
      memory: this.memory.buffer,
      exchange: new AllGather(this.team, scratch, this.#bytes, bus),
      weights: this.#mixture?.weights ?? null,
    });
  }

  /** This thread's pages of the KV cache; the leader accesses them between passes. */
  get kvPages(): ThreadPages {
    const { kv, kvPageBytes, kvLayerBytes } = this.#at;
    return { memory: this.memory.buffer, kv, kvPageBytes, kvLayerBytes };
  }

  /** Reads and packs this thread's part of the model file. Throws model_file_invalid. */
  async load(onBytes: (bytes: number) => void): Promise<void> {
    await loadWeights(this.#blueprint, this.#divided, this.#index, this.#at, this.#kernels, this.#bytes, onBytes);
    this.#mixture?.classifier.load(this.#index, this.#kernels);
  }

  /**
   * Runs the described pass; all threads call it. The results are complete on return. On the leader, `beforeLayer` may
   * throw; the leader must then fail the group.
   */
  runPass(beforeLayer?: () => void): void {
    const { tokenCount, outputCount, isFirstPass } = this.order;
    this.#kv.beginPass();
    this.#adapters?.begin();
    this.#rotations.forEach((table, i) => {
      fillRotation(this.order, this.#blueprint.shape.ropes[i] as Rope, table);
    });
    this.#embed(tokenCount);
    for (const layer of this.#divided.layers) {
      beforeLayer?.();
      for (const step of layer) this.#runStep(step, tokenCount);
      this.#kv.nextLayer();
    }
    if (isFirstPass) this.#classify(tokenCount);
    else if (outputCount > 0) this.#project(outputCount);
    this.team.barrier();
  }

  /** Pools from the last pass. Every thread has all hidden states; the leader's pooler is used. */
  createPooler(): Pooler {
    const { graph, shape } = this.#blueprint;
    const { scoring } = this.#divided;
    const lent = { kernels: this.#kernels, norms: this.#norms, products: this.#products, at: this.#at };
    return new Pooler({
      ...lent,
      pooling: graph.pooling,
      outputNorm: graph.outputNorm,
      shape,
      scoring,
      floats: this.#floats,
    });
  }

  #runStep(step: DividedStep, n: number): void {
    const { hidden, input } = this.#at;
    switch (step.kind) {
      case "norm":
        this.#norms.run(step.norm, hidden, input, n);
        return;
      case "settle":
        this.#norms.run(step.norm, hidden, hidden, n);
        return;
      case "attention":
        this.#attention.run(step, n);
        return;
      case "feedForward":
        this.#feedForward.run(step, n);
        return;
      case "experts":
        this.#experts?.run(step, n);
    }
  }

  /** Each thread looks up the tokens whose embedding rows it has; together they form the first hidden state. */
  #embed(n: number): void {
    const { tokens } = this.order;
    const { width, embeddingScale } = this.#blueprint.shape;
    const { hidden } = this.#at;
    const [piece] = this.#products.own(this.#divided.embedding).pieces;
    const rowOf = (i: number) => (tokens[i] as number) - (piece?.firstRow ?? 0);
    const isOwn = (i: number) => piece !== undefined && rowOf(i) >= 0 && rowOf(i) < piece.rows;
    const bytes = width * floatBytes;
    for (let i = 0; piece && i < n; i++) {
      const { name, tensor } = piece.matrix;
      const matrix = this.#at.weights.get(name) as number;
      if (isOwn(i)) this.#kernels.readRow(tensor.type, matrix, rowOf(i), piece.padded, width, hidden + i * bytes);
    }
    this.#exchange.rows(hidden, n, bytes, isOwn);
    if (embeddingScale !== 1) this.#kernels.scaleRows(hidden, width, n, width, embeddingScale);
    this.#tables?.add(n);
  }

  /** Weighs the adapters for every token of a mixture's first pass. */
  #classify(n: number): void {
    if (!this.#mixture) return;
    const { classifier, weights } = this.#mixture;
    const { hidden, input } = this.#at;
    this.#norms.run(this.#blueprint.graph.outputNorm, hidden, input, n);
    weights.take(classifier.run(input, n));
  }

  /** Computes logits for the output tokens; every thread writes its part of the vocabulary. */
  #project(outputs: number): void {
    const { order } = this;
    const { shape, graph } = this.#blueprint;
    const { width, vocabSize } = shape;
    const { hidden, input, joined, logits } = this.#at;
    const { outputPlace: place, output } = this.#divided;
    const share = this.#products.own(output);
    for (let i = 0; i < outputs; i++) {
      const from = hidden + (order.outputs[i] as number) * width * floatBytes;
      this.#kernels.copyRows(from, width, joined + i * width * floatBytes, width, 1, width);
    }
    this.#norms.run(graph.outputNorm, joined, input, outputs);
    multiplyPlace(this.#parts, share, { place, x: input, columns: width, n: outputs }, logits);
    this.#finishLogits(logits, outputs, share.stride);
    for (const { firstRow, rows, slabColumn } of share.pieces) {
      for (let i = 0; i < outputs; i++) {
        const from = (logits >>> 2) + i * share.stride + slabColumn;
        const to = (order.firstLogits + i) * vocabSize + firstRow;
        this.#logits.set(this.#floats.subarray(from, from + rows), to);
      }
    }
  }

  #finishLogits(logits: number, outputs: number, stride: number): void {
    const { logitScale, logitSoftcap } = this.#blueprint.shape;
    if (logitScale !== 1) this.#kernels.scaleRows(logits, stride, outputs, stride, logitScale);
    if (logitSoftcap > 0) this.#kernels.softcap(logits, outputs * stride, logitSoftcap);
  }
}
